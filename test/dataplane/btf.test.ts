import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import {
  COUNTER_INDEX,
  COUNTERS,
  DROP_REASON,
  FLOW_STATE,
  FLOW_STATES,
  LINE_BYTES,
  PRIORITY,
  REVERSE_PATH,
  TICK_NS,
} from '#contracts/datapath/datapath-numbers.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import { FLOW_LAYOUTS } from '#dataplane/abi/flow.js';
import {
  HIT_BYTES,
  HIT_OFFSETS,
  HIT_REF_BYTES,
  HIT_REF_OFFSETS,
  VITALS_BYTES,
  VITALS_OFFSETS,
} from '#dataplane/abi/hit.js';
import {
  IPV6_PROOF_PACKET,
  IPV6_PROOF_PACKET_BYTES,
  PROOF_PACKET,
  PROOF_PACKET_BYTES,
} from '#dataplane/abi/proof-packet.js';
import { REVERT_BYTES, REVERT_OFFSETS, REVERT_REQUEST_BYTES, REVERT_REQUEST_OFFSETS } from '#dataplane/abi/revert.js';
import {
  IPV6_SETTINGS_BYTES,
  IPV6_SETTINGS_OFFSETS,
  SETTINGS_BYTES,
  SETTINGS_OFFSETS,
} from '#dataplane/abi/settings.js';
import { ACTIVE, TRANSLATES } from '#dataplane/activate/slots.js';
import { PORT_ADDRESSES, PORT_BYTES, PORT_OFFSETS } from '#dataplane/attach/interfaces/port-table.js';
import { EVENT_BYTES, EVENT_OFFSETS, EVENT_TYPE } from '#dataplane/events/event.js';
import { HOOK_KIND, OTHER, OTHERS, OTHERS_BYTES } from '#dataplane/forwarding/third-party-hooks.js';
import { GRANT_LAYOUTS, HEADER, LINE, PATTERN, SET_LINE, SET_PLACES } from '#dataplane/grants/grant-layout.js';
import { builtIpv6Object, builtObject, builtThirdPartyProgram } from '#dataplane/loader/bpf-object.js';
import { INCOMPLETE, MEMBER_LAYOUTS, MEMBER_LINE, MEMBER_SET } from '#dataplane/members/member-layout.js';
import {
  ENDS,
  HOLD_RESULT,
  SPLICE_ENTRY,
  SPLICE_ENTRY_BYTES,
  SPLICE_KEY,
  SPLICE_KEY_BYTES,
  SPLICE_STATE,
  TICK_SHIFT,
} from '#splicing/layout.js';

type BtfType = {
  readonly id: number;
  readonly nr_elems?: number;
  readonly kind: string;
  readonly name: string;
  readonly size?: number;
  readonly members?: readonly { readonly name: string; readonly type_id: number; readonly bits_offset: number }[];
  readonly values?: readonly { readonly name: string; readonly val: number }[];
};

function typesOf(object: string): BtfType[] {
  const dump = execFileSync('bpftool', ['-j', 'btf', 'dump', 'file', object], { encoding: 'utf8' });
  return (JSON.parse(dump) as { types: BtfType[] }).types;
}
const types = typesOf(builtObject);
const typesOfIpv6 = typesOf(builtIpv6Object);

function struct(name: string, among = types): { size: number | undefined; offsets: Record<string, number> } {
  const found = among.find((type) => type.kind === 'STRUCT' && type.name === name);
  const members = found?.members ?? [];
  const named = members.filter((member) => !['reserved', 'unused'].includes(member.name));
  return {
    size: found?.size,
    offsets: Object.fromEntries(named.map((member) => [member.name, member.bits_offset / 8])),
  };
}

function arrayLength(name: string, member: string, among = types): number | undefined {
  const found = among.find((type) => type.kind === 'STRUCT' && type.name === name);
  const id = found?.members?.find((candidate) => candidate.name === member)?.type_id;
  return among.find((type) => type.id === id)?.nr_elems;
}

/** Returns the values of a C enum by name. The names have no `prefix` and are in lower case. */
function enumeration(name: string, prefix: string, among = types): Record<string, number> {
  const values = among.find((type) => type.kind === 'ENUM' && type.name === name)?.values ?? [];
  return Object.fromEntries(values.map(({ name, val }) => [name.replace(prefix, '').toLowerCase(), val]));
}

test('PORT_OFFSETS equals the layout of struct port in the BPF object', () => {
  expect(struct('port')).toEqual({ size: PORT_BYTES, offsets: PORT_OFFSETS });
  expect(arrayLength('port', 'addresses')).toBe(PORT_ADDRESSES);
});

test('SETTINGS_OFFSETS equals the layout of struct settings in the BPF object', () => {
  expect(struct('settings')).toEqual({ size: SETTINGS_BYTES, offsets: SETTINGS_OFFSETS });
});

test('ACTIVE equals the layout of struct active (active word and deadlines) in the BPF object', () => {
  expect(struct('active')).toEqual({
    size: ACTIVE.bytes,
    offsets: {
      word: ACTIVE.word * 4,
      layout_version: ACTIVE.layoutVersion * 4,
      pickup_until_ns: ACTIVE.pickupUntilNs * 4,
      events_wanted: ACTIVE.eventsWanted * 4,
      translates: ACTIVE.translates * 4,
      direct_until_ns: ACTIVE.directUntilNs * 4,
      ipv6_direct_until_ns: ACTIVE.ipv6DirectUntilNs * 4,
    },
  });
});

test.each([
  ['ipv4', types],
  ['ipv6', typesOfIpv6],
] as const)(
  'FLOW_LAYOUTS has the layouts of struct flow, tally and flow_key in the BPF object of %s',
  (family, among) => {
    const layout = FLOW_LAYOUTS[family];
    const [flow, tally] = [struct('flow', among), struct('tally', among)];
    const behind = Object.entries(tally.offsets).map(([name, offset]) => [name, layout.structBytes + offset]);
    const both = {
      size: (flow.size ?? 0) + (tally.size ?? 0),
      offsets: { ...flow.offsets, ...Object.fromEntries(behind) },
    };
    expect([flow.size, both, struct('flow_key', among)]).toEqual([
      layout.structBytes,
      { size: layout.bytes, offsets: layout.offsets },
      { size: layout.keyBytes, offsets: layout.keyOffsets },
    ]);
  },
);

test('struct event and struct port are the same in both BPF objects, and the next hops and fragments of IPv6 have addresses of 16 bytes', () => {
  for (const name of ['event', 'port']) expect(struct(name, typesOfIpv6)).toEqual(struct(name));
  expect(struct('way', typesOfIpv6)).toEqual({ size: 32, offsets: { ifindex: 0, gateway: 8, mtu: 24, refreshed: 28 } });
  expect(struct('fragment_key', typesOfIpv6)).toEqual({
    size: 48,
    offsets: { source: 0, destination: 16, id: 32, protocol: 36, outgoing: 37, ifindex: 40 },
  });
  expect(struct('fragments', typesOfIpv6)).toEqual({
    size: 1_056,
    offsets: { opened_ns: 0, packet_ports: 8, units: 12, last_unit: 16, furthest: 20, seen: 24, protocol: 1_048 },
  });
});

test('SPLICE_ENTRY, SPLICE_KEY, SPLICE_STATE, HOLD_RESULT and ENDS equal the structs and enums of the splicing offload in the BPF object', () => {
  expect([struct('join_key'), struct('join')]).toEqual([
    { size: SPLICE_KEY_BYTES, offsets: SPLICE_KEY },
    { size: SPLICE_ENTRY_BYTES, offsets: SPLICE_ENTRY },
  ]);
  expect([enumeration('join_state', 'JOIN_'), enumeration('joined', 'JOIN_')]).toEqual([SPLICE_STATE, HOLD_RESULT]);
  expect(enumeration('join_end', 'JOIN_')).toEqual(ENDS);
  expect(2 ** Number(TICK_SHIFT)).toBe(TICK_NS);
});

test('EVENT_OFFSETS and EVENT_TYPE equal struct event and enum event_type in the BPF object', () => {
  expect(struct('event')).toEqual({ size: EVENT_BYTES, offsets: EVENT_OFFSETS });
  expect(enumeration('event_type', 'EVENT_')).toEqual(EVENT_TYPE);
});

test('HIT_OFFSETS, HIT_REF_OFFSETS and VITALS_OFFSETS equal struct hit, hit_ref and vitals in the BPF object', () => {
  expect([struct('hit'), struct('hit_ref'), struct('vitals')]).toEqual([
    { size: HIT_BYTES, offsets: HIT_OFFSETS },
    { size: HIT_REF_BYTES, offsets: HIT_REF_OFFSETS },
    { size: VITALS_BYTES, offsets: VITALS_OFFSETS },
  ]);
});

test('struct line has LINE_BYTES bytes, and struct counter has two 64-bit fields: packets, bytes', () => {
  expect([struct('line').size, struct('counter')]).toEqual([
    LINE_BYTES,
    { size: 16, offsets: { packets: 0, bytes: 8 } },
  ]);
});

test('the constants of the grant table equal the layouts of struct grant_set and pattern in the BPF object', () => {
  expect([struct('grant_set'), struct('pattern')]).toEqual([
    { size: LINE.words * 4, offsets: { grants: SET_LINE.grants * 8, next: SET_LINE.next * 4 } },
    { size: PATTERN.words * 4, offsets: { names: PATTERN.names * 4, digest: PATTERN.digest * 4 } },
  ]);
  expect(SET_PLACES).toBe(arrayLength('grant_set', 'grants'));
});

test.each(['ipv4', 'ipv6'] as const)(
  'the layout of the grant table of %s equals struct grant_header and grant_line in the BPF object of this family',
  (family) => {
    const size = LINE.words * 4;
    const { line, places } = GRANT_LAYOUTS[family];
    const from = family === 'ipv6' ? typesOfIpv6 : undefined;
    expect([struct('grant_header', from), struct('grant_line', from)]).toEqual([
      {
        size,
        offsets: {
          multiplier: HEADER.multiplier * 4,
          addend: HEADER.addend * 4,
          homes: HEADER.homes * 4,
          ...(family === 'ipv6' && { others: HEADER.others * 4 }),
        },
      },
      {
        size,
        offsets: {
          spilled: line.spilled * 4,
          addresses: line.addresses * 4,
          grants: line.grants * 8,
        },
      },
    ]);
    expect(places).toBe(arrayLength('grant_line', 'addresses', from));
  },
);

test.each(['ipv4', 'ipv6'] as const)(
  'the constants of the members of %s equal struct member_header, member_line and member_set in the BPF object of this family',
  (family) => {
    const size = MEMBER_LINE.words * 4;
    const { line, places } = MEMBER_LAYOUTS[family];
    const from = family === 'ipv6' ? typesOfIpv6 : undefined;
    const { refused, spilled } = line;
    const counters = { spilled: spilled * 4, refused: refused * 4 };
    expect(['member_header', 'member_line', 'member_set'].map((name) => struct(name, from))).toEqual([
      {
        size,
        offsets: {
          multiplier: HEADER.multiplier * 4,
          addend: HEADER.addend * 4,
          homes: HEADER.homes * 4,
          incomplete: INCOMPLETE * 4,
          ...(family === 'ipv6' && { others: HEADER.others * 4 }),
        },
      },
      {
        size,
        offsets:
          family === 'ipv4'
            ? { ...counters, members: line.addresses * 4 }
            : { ...counters, addresses: line.addresses * 4, sets: line.sets * 4 },
      },
      { size: MEMBER_SET.words * 4, offsets: { indexes: MEMBER_SET.indexes * 4, digest: MEMBER_SET.digest * 4 } },
    ]);
    expect(places).toBe(arrayLength('member_line', family === 'ipv4' ? 'members' : 'sets', from));
  },
);

test('REVERT_OFFSETS and REVERT_REQUEST_OFFSETS equal the layouts of struct revert and struct revert_request in the BPF object', () => {
  const [revert, request] = [struct('revert'), struct('revert_request')];
  expect(revert).toMatchObject({ size: REVERT_BYTES, offsets: REVERT_OFFSETS });
  expect(request).toEqual({ size: REVERT_REQUEST_BYTES, offsets: REVERT_REQUEST_OFFSETS });
});

test('PROOF_PACKET equals the layout of struct proof_packet in the BPF object', () => {
  const { size, offsets } = struct('proof_packet');
  expect([size, offsets]).toEqual([PROOF_PACKET_BYTES, PROOF_PACKET]);
});

test('IPV6_SETTINGS_OFFSETS and IPV6_PROOF_PACKET equal the layouts of struct settings and struct proof_packet in the BPF object of IPv6', () => {
  expect([struct('settings', typesOfIpv6), struct('proof_packet', typesOfIpv6)]).toEqual([
    { size: IPV6_SETTINGS_BYTES, offsets: IPV6_SETTINGS_OFFSETS },
    { size: IPV6_PROOF_PACKET_BYTES, offsets: IPV6_PROOF_PACKET },
  ]);
});

test('the numbers of verdicts, reverse path modes, priorities, translated families, drop reasons, flow states and counters equal the enums in the BPF object', () => {
  expect(enumeration('verdict', 'VERDICT_')).toEqual(VERDICT_NUMBER);
  expect(enumeration('reverse_path', 'REVERSE_PATH_')).toEqual(REVERSE_PATH);
  expect(enumeration('priority', 'PRIORITY_')).toEqual(PRIORITY);
  expect(enumeration('drop_reason', 'DROP_')).toEqual({
    ...DROP_REASON,
    reasons: Math.max(...Object.values(DROP_REASON)) + 1,
  });
  expect(enumeration('flow_state', 'FLOW_')).toEqual({ ...FLOW_STATE, states: FLOW_STATES });
  expect(enumeration('translates', 'TRANSLATES_')).toEqual(TRANSLATES);
  expect(enumeration('counter_index', 'COUNT_')).toEqual({ ...COUNTER_INDEX, counters: COUNTERS });
});

test('OTHER, OTHERS and HOOK_KIND equal struct other, struct others and enum other_kind in the BPF object that finds third-party hooks', () => {
  const others = typesOf(builtThirdPartyProgram);
  const { size, ...at } = OTHER;
  const { places, ...of } = OTHERS;
  expect([struct('other', others), struct('others', others)]).toEqual([
    { size, offsets: at },
    { size: OTHERS_BYTES, offsets: of },
  ]);
  expect(OTHERS_BYTES).toBe(of.found + places * size);
  expect(enumeration('other_kind', 'OTHER_', others)).toEqual(HOOK_KIND);
});
