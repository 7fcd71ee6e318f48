/**
 * The fields of the wiretap messages of a TCP connection from 10.0.0.7:40000 to 192.0.2.1:443 that rule `web`
 * decides.
 */
export const CONNECTION_FIELDS = {
  src: '10.0.0.7',
  src_port: 40_000,
  dst: '192.0.2.1',
  dst_port: 443,
  proto: 6,
  icmp_id: null,
  src_names: [],
  source_group: 'lan',
  rule: 'web',
  decided_by: 'rule',
  generation: 7,
};

/**
 * The fields of the wiretap messages of a DNS query of 10.0.0.7 for an A record that rule `web` of source
 * group `lan` allows.
 */
export const LOOKUP_FIELDS = {
  type: 'dns',
  src: '10.0.0.7',
  query_type: 'A',
  verdict: 'allow',
  effective_action: 'allow',
  source_group: 'lan',
  rule: 'web',
  decided_by: 'rule',
  generation: 7,
};

/**
 * The wiretap message of a new flow: rule `web` of source group `lan` allows a TCP connection from
 * 10.0.0.7:40000 to 192.0.2.1:443, whose learned name is api.example.com.
 */
export const FLOW_MESSAGE = {
  type: 'flow',
  time: '2026-01-31T12:00:00.123Z',
  ...CONNECTION_FIELDS,
  dst_names: ['api.example.com'],
  verdict: 'allow',
  effective_action: 'allow',
  policy_id: 'p-1',
  interface: 'lan0',
  state: 'tcp_syn_sent',
  foreign: false,
};
