export const FLOW_VERDICTS = ['allow', 'audit', 'redirect'] as const;
export const FLOW_STATES = [
  'tcp_syn_sent',
  'tcp_syn_received',
  'tcp_established',
  'tcp_half_closed',
  'tcp_closing',
  'tcp_reset',
  'udp_opened',
  'udp_replied',
  'icmp_opened',
  'icmp_replied',
  'other_opened',
  'other_replied',
] as const;
