import { describe, expect, it } from 'vitest';
import { hostFault, readAuthority } from '#service-plane/http/authority.js';

const connection = { sni: 'a.test', port: 8443 };

describe('hostFault for a connection with server name a.test and port 8443', () => {
  it.each([
    ['a.test', null],
    ['A.Test', null],
    ['a.test.', null],
    ['a.test:8443', null],
    ['a.test:443', 'host_is_not_sni'],
    ['b.test', 'host_is_not_sni'],
    ['x.a.test', 'host_is_not_sni'],
    ['a.test.evil', 'host_is_not_sni'],
    ['[::1]', 'host_is_not_sni'],
  ])(
    'for the Host value %s on a connection with server name a.test and port 8443, `hostFault` returns %s',
    (text, fault) => {
      const authority = readAuthority(text);
      if (typeof authority === 'string') throw new Error(authority);
      expect(hostFault(authority, connection)).toBe(fault);
    },
  );
});
