import { describe, expect, it } from 'vitest';
import { styleOf } from '#cli/output/style.js';
import { differenceText } from '#cli/policy/diff.command.js';
import { differenceOf, isSame } from '#cli/policy/difference.js';

const plain = styleOf({ colours: false });
const rule = (id: string, match: object = {}, more: object = {}) => ({ id, action: 'allow', match, ...more });
const group = (id: string, rules: object[], more: object = {}) => ({
  id,
  mode: 'enforce',
  sources: { ips: ['10.0.0.7'] },
  rules,
  ...more,
});
const text = (before: object[], after: object[]) =>
  differenceText(differenceOf({ source_groups: before }, { source_groups: after }), plain);

describe('difference of two policies', () => {
  it('the difference of two policies lists added, removed and changed rules, with the added and removed values of each field', () => {
    const before = [group('lan', [rule('web', { proto: 'tcp', dst_ports: [80, '443'] }), rule('old')])];
    const after = [
      group('lan', [rule('web', { proto: 'TCP', dst_ports: [443, 8443], dst_cidrs: ['192.0.2.0/24'] }), rule('dns')]),
    ];
    expect(text(before, after)).toBe(`~ group lan
  ~ rule web
      match.dst_ports: -80 +8443
      match.dst_cidrs: +192.0.2.0/24
  + rule dns
  - rule old
`);
  });

  it('the difference of two policies lists the rules of an added and of a removed group', () => {
    const lan = group('lan', [rule('web'), rule('dns')]);
    expect(text([], [lan])).toBe('+ group lan\n  + rule web\n  + rule dns\n');
    expect(text([lan], [])).toBe('- group lan\n  - rule web\n  - rule dns\n');
  });

  it('the difference of two policies ignores the order of list values, empty lists, and the difference between 443 and "443"', () => {
    const before = [group('lan', [rule('web', { dst_ports: [80, 443], src_ports: [] })])];
    const after = [group('lan', [rule('web', { dst_ports: ['443', 80] })])];
    expect(isSame(differenceOf({ source_groups: before }, { source_groups: after }))).toBe(true);
  });

  it('the difference of two policies marks only as many groups as moved as are needed to explain the new order of evaluation', () => {
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((id) => group(id, [])) as [object, object, object, object];
    expect(text([a, b, c, d], [d, a, b, c])).toBe('~ group d moved from place 4 to 1\n');
    expect(text([a, b], [a, { ...b, priority: 1 }])).toBe('~ group b\n    priority: (none) → 1\n');
    expect(text([a, b], [{ ...a, priority: 5 }, b])).toContain(' moved from place ');
  });

  it('the difference of two policies does not list a group as moved if groups before this group were only added or removed', () => {
    const [a, b, c] = ['a', 'b', 'c'].map((id) => group(id, [])) as [object, object, object];
    expect(text([a, b, c], [c])).toBe('- group a\n- group b\n');
    expect(text([c], [a, b, c])).toBe('+ group a\n+ group b\n');
  });

  it('the difference of two policies marks an added value and a removed value differently, also in a nested matcher', () => {
    const before = [group('lan', [rule('web', { tls: { sni: { exact: ['a.test'] } } }, { mode: 'audit' })])];
    const after = [group('lan', [rule('web', { tls: { sni: 'a[.]test', mode: 'metadata' } })])];
    expect(text(before, after)).toBe(`~ group lan
  ~ rule web
      match.tls.sni: {"exact":["a.test"]} → a[.]test
      match.tls.mode: (none) → metadata
      mode: audit → (none)
`);
  });
});
