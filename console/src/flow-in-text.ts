/** A flow that the user has typed or pasted as text. Members that the text does not contain are absent. */
export type FlowInText = {
  readonly src?: string;
  readonly dst?: string;
  readonly proto?: string;
  readonly src_port?: number;
  readonly dst_port?: number;
  readonly hostname?: string;
};

const V4 = '(?:\\d{1,3}\\.){3}\\d{1,3}';
const ENDPOINT = new RegExp(`\\b(${V4})(?::(\\d{1,5}))?\\b`, 'g');
const PROTO = /\b(tcp|udp|icmp|sctp)\b/i;
const NAMED_PORT = {
  src: /\b(?:SPT|sport|src_port|srcport|source_port)\W{1,3}(\d{1,5})\b/i,
  dst: /\b(?:DPT|dport|dst_port|dstport|destination_port)\W{1,3}(\d{1,5})\b/i,
};
const NAMED = {
  src: new RegExp(`\\b(?:SRC|saddr|src_ip|src|source|from)\\W{1,3}(${V4})`, 'i'),
  dst: new RegExp(`\\b(?:DST|daddr|dst_ip|dst|destination|to)\\W{1,3}(${V4})`, 'i'),
};
const SERVICE = /\b(tcp|udp)[\s/:]+(\d{1,5})\b/i;
const SNI = /\b(?:sni|hostname|host)\W{1,3}([a-z0-9-]+(?:\.[a-z0-9-]+)+)\b/i;

/**
 * Reads a flow from any line with two addresses: a kernel or firewall log, a line of `weir wiretap` or
 * tcpdump, JSON, or "10.1.0.7 → 10.2.0.1 tcp/443". Field names such as `SRC=` and `dst_port:` take precedence
 * over the order of the addresses.
 */
export function flowInText(text: string): FlowInText {
  // tcpdump writes the port after a fifth dot: "10.1.0.7.51012 > 10.2.0.1.443".
  const line = text.replace(new RegExp(`\\b(${V4})\\.(\\d{1,5})\\b(?=\\s*[>:])`, 'g'), '$1:$2');
  const [first, second] = [...line.matchAll(ENDPOINT)];
  const number = (found: string | undefined) => (found === undefined ? undefined : Number(found));
  const isNamed = NAMED.src.test(line) && NAMED.dst.test(line);
  const proto = PROTO.exec(line)?.[1]?.toLowerCase();
  const srcPort = number(NAMED_PORT.src.exec(line)?.[1]) ?? (isNamed ? undefined : number(first?.[2]));
  const dstPort = number(NAMED_PORT.dst.exec(line)?.[1]) ?? number(second?.[2]) ?? number(SERVICE.exec(line)?.[2]);
  const flow = {
    src: isNamed ? NAMED.src.exec(line)?.[1] : first?.[1],
    dst: isNamed ? NAMED.dst.exec(line)?.[1] : second?.[1],
    proto: proto ?? (dstPort === undefined ? undefined : 'tcp'),
    src_port: srcPort,
    dst_port: dstPort,
    hostname: SNI.exec(line)?.[1]?.toLowerCase(),
  };
  return Object.fromEntries(Object.entries(flow).filter(([, value]) => value !== undefined));
}
