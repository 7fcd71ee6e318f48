import { expect, test } from 'vitest';
import { configWarnings } from '#config/config-warnings.js';
import { parseConfig } from '#config/load.js';

const warnings = (keys: string, environment: Record<string, string> = {}): string[] =>
  configWarnings(parseConfig(`version: 1\ndataplane: { interfaces: [lan0]${keys} }\n`, 'weir.yaml', environment));

test('a configuration with `non_ipv4: pass` and without `ipv6` has a warning that names the key that passes IPv6', () => {
  expect(warnings(', non_ipv4: pass')).toEqual([
    'dataplane.non_ipv4: pass does not pass IPv6, and there is no dataplane.ipv6: forwarded IPv6 is dropped; `ipv6: pass` passes it, and `ipv6: drop` ends this warning',
  ]);
  expect(warnings('', { WEIR_DATAPLANE__NON_IPV4: 'pass' })).toHaveLength(1);
});

test.each([
  ['', {}],
  [', non_ipv4: drop', {}],
  [', non_ipv4: pass, ipv6: drop', {}],
  [', non_ipv4: pass, ipv6: pass', {}],
  [', non_ipv4: pass', { WEIR_DATAPLANE__IPV6: 'drop' }],
])('a configuration has no warning about IPv6 with the keys "%s" and the environment %o', (keys, environment) => {
  expect(warnings(keys, environment)).toEqual([]);
});

test('a configuration without the section `dataplane` has no warning', () => {
  expect(configWarnings(parseConfig('version: 1\n', 'weir.yaml', {}))).toEqual([]);
});
