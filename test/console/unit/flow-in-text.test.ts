import { expect, test } from 'vitest';
import { flowInText } from '../../../console/src/flow-in-text.js';

const FLOW = { src: '10.1.0.7', dst: '10.2.0.1', proto: 'tcp', dst_port: 443 };

test.each([
  ['a line of the console', '10.1.0.7:51012 → 10.2.0.1:443 tcp', { ...FLOW, src_port: 51_012 }],
  ['a line with a service', '10.1.0.7 -> 10.2.0.1 tcp/443', FLOW],
  [
    'a log line of the kernel',
    'IN=lan0 OUT=wan0 SRC=10.1.0.7 DST=10.2.0.1 LEN=60 TTL=63 PROTO=TCP SPT=51012 DPT=443 SYN',
    { ...FLOW, src_port: 51_012 },
  ],
  [
    'a kernel log line that names the destination first',
    'DST=10.2.0.1 SRC=10.1.0.7 PROTO=UDP SPT=53124 DPT=53',
    { src: '10.1.0.7', dst: '10.2.0.1', proto: 'udp', src_port: 53_124, dst_port: 53 },
  ],
  [
    'a line of tcpdump',
    '12:00:01.000000 IP 10.1.0.7.51012 > 10.2.0.1.443: Flags [S], seq 1, win 64240, length 0 tcp',
    { ...FLOW, src_port: 51_012 },
  ],
  [
    'a JSON message',
    '{"src_ip":"10.1.0.7","dst_ip":"10.2.0.1","proto":"tcp","src_port":51012,"dst_port":443,"hostname":"api.example.com"}',
    { ...FLOW, src_port: 51_012, hostname: 'api.example.com' },
  ],
  ['a ping', 'icmp echo request 10.1.0.7 > 10.2.0.1', { src: '10.1.0.7', dst: '10.2.0.1', proto: 'icmp' }],
  ['only one address', 'from 10.1.0.7', { src: '10.1.0.7' }],
  ['no address', 'connection refused', {}],
])('the console finds the addresses, ports and protocol of a flow in a pasted text: %s', (_, text, flow) => {
  expect(flowInText(text)).toEqual(flow);
});
