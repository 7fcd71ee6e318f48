import { type Conversation, type Exchange, passedOn } from './conversation.js';
import { type NodeRequest, nodeView } from './llhttp.js';

/** Names of fields that the service plane changes or removes when it forwards a request. */
const OF_HOP =
  /^(te|expect|upgrade|keep-alive|connection|http2-settings|proxy-connection|transfer-encoding|content-length)$/;

/**
 * Compares the requests that the service plane has read with the requests that Node's parser reads from the
 * received and from the forwarded bytes. Returns the first difference, or null. Node may accept requests that
 * the service plane rejects.
 */
export function differenceFromNode(bytes: Buffer, { exchanges }: Conversation): string | null {
  if (exchanges.length === 0) return null;
  if (TAB_BEHIND.test(bytes.toString('latin1'))) return exchanges.map(behind).find((one) => one !== null) ?? null;
  const seen = nodeView(bytes);
  for (const [index, exchange] of exchanges.entries()) {
    const node = seen.requests[index];
    if (node === undefined)
      return isOnlyUnknown(exchange, seen.error) ? null : `request ${index}: ${seen.error ?? 'not seen'}`;
    const difference = before(exchange, node) ?? behind(exchange);
    if (difference !== null) return `request ${index}: ${difference}`;
    if (node.upgrades) return null;
  }
  return null;
}

/**
 * Returns true if Node rejects only the method. Node accepts a fixed list of methods; the service plane
 * accepts any token in upper case.
 */
function isOnlyUnknown({ head }: Exchange, error: string | null): boolean {
  return error === 'HPE_INVALID_METHOD' || (error === 'HPE_INVALID_CONSTANT' && head.method !== 'GET');
}

/**
 * Matches a Content-Length or Transfer-Encoding value that a tab follows. Node includes the tab in the value,
 * contrary to RFC 9110, 5.5. The service plane forwards the value without the tab, so only the forwarded
 * bytes are compared.
 */
const TAB_BEHIND = /(content-length|transfer-encoding):[^\r]*\t[\t ]*\r/i;

function before(exchange: Exchange, node: NodeRequest): string | null {
  const { head } = exchange;
  const target = head.query === null ? head.path : `${head.path}?${head.query}`;
  const isAbsolute = /^https?:/i.test(node.url);
  if (!isAbsolute && node.url !== target) return `target ${target}, ${node.url}`;
  if (isAbsolute && target !== '*' && target !== '/' && !node.url.endsWith(target.replace(/^\/\?/, '?')))
    return `target ${target}, ${node.url}`;
  if (node.version !== head.version) return `version ${node.version}`;
  const theirs = node.headers
    .filter(([sent]) => !OF_HOP.test(sent.toLowerCase()))
    .map(([sent, value]) => `${sent}: ${value}`);
  const ours = head.headers
    .filter(([name]) => !OF_HOP.test(name))
    .map(([name, value, sent]) => `${sent ?? name}: ${value}`);
  let at = 0;
  for (const line of ours) {
    at = theirs.indexOf(line, at) + 1;
    if (at === 0) return `header ${line}`;
  }
  return sameMessage(exchange, node);
}

function behind(exchange: Exchange): string | null {
  if (!exchange.isComplete) return null;
  const { head } = exchange;
  const { requests, error } = nodeView(passedOn(exchange));
  const [node, second] = requests;
  if (error !== null || node === undefined || second !== undefined)
    return `behind the proxy: ${error ?? requests.length}`;
  if (!node.isComplete) return 'behind the proxy: not complete';
  const expected = head.headers
    .filter(([name]) => name !== 'host')
    .map(([name, value, sent]) => `${sent ?? name}: ${value}`);
  const theirs = node.headers
    .map(([sent, value]) => `${sent}: ${value}`)
    .filter((line) => !/^(Connection|Transfer-Encoding): /.test(line));
  if (JSON.stringify(theirs) !== JSON.stringify([`Host: ${head.authority}`, ...expected]))
    return `behind the proxy: ${theirs.join(' | ')}`;
  return sameMessage(exchange, node);
}

function sameMessage({ head, body, isComplete }: Exchange, node: NodeRequest): string | null {
  if (node.method !== head.method) return `method ${node.method}`;
  if (isComplete && !(node.isComplete && node.body === body))
    return `body ${JSON.stringify(node.body)}, complete: ${node.isComplete}`;
  return null;
}
