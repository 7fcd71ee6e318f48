import { absentPart } from './absent-part.js';

export const dnsProxyChart = absentPart(
  'dnsProxy',
  'dns_allowlist',
  'dns',
  'dns',
  'hostname rules match nothing, since no address is learned',
);
