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
import { FLOW_BYTES, FLOW_KEY_BYTES, FLOW_KEY_OFFSETS, FLOW_OFFSETS, FLOW_STRUCT_BYTES } from '#dataplane/abi/flow.js';
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
import { ACTIVE } from '#dataplane/activate/slots.js';
import { PORT_ADDRESSES, PORT_BYTES, PORT_OFFSETS } from '#dataplane/attach/interfaces/port-table.js';
import { EVENT_BYTES, EVENT_OFFSETS, EVENT_TYPE } from '#dataplane/events/event.js';
import { HOOK_KIND, OTHER, OTHERS, OTHERS_BYTES } from '#dataplane/forwarding/third-party-hooks.js';
import { HEADER, LINE, PATTERN, PLACES, SET_LINE, SET_PLACES, TABLE_LINE } from '#dataplane/grants/grant-layout.js';
import { builtIpv6Object, builtObject, builtThirdPartyProgram } from '#dataplane/loader/bpf-object.js';
import { INCOMPLETE, MEMBER_FIELDS, MEMBER_LINE, MEMBER_PLACES, MEMBER_SET } from '#dataplane/members/member-layout.js';
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

function struct(name: string, among = types): { size: number | undefined; offsets: Record<string, number> } {
  const found = among.find((type) => type.kind === 'STRUCT' && type.name === name);
  const members = found?.members ?? [];
  const named = members.filter((member) => !['reserved', 'unused'].includes(member.name));
  return {
    size: found?.size,
    offsets: Object.fromEntries(named.map((member) => [member.name, member.bits_offset / 8])),
  };
}

function arrayLength(name: string, member: string): number | undefined {
  const found = types.find((type) => type.kind === 'STRUCT' && type.name === name);
  const id = found?.members?.find((candidate) => candidate.name === member)?.type_id;
  return types.find((type) => type.id === id)?.nr_elems;
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
    },
  });
});

test('FLOW_OFFSETS and FLOW_KEY_OFFSETS equal the layouts of struct flow, tally and flow_key in the BPF object', () => {
  const [flow, tally] = [struct('flow'), struct('tally')];
  const behind = Object.entries(tally.offsets).map(([name, offset]) => [name, FLOW_STRUCT_BYTES + offset]);
  const both = {
    size: (flow.size ?? 0) + (tally.size ?? 0),
    offsets: { ...flow.offsets, ...Object.fromEntries(behind) },
  };
  expect([flow.size, both, struct('flow_key')]).toEqual([
    FLOW_STRUCT_BYTES,
    { size: FLOW_BYTES, offsets: FLOW_OFFSETS },
    { size: FLOW_KEY_BYTES, offsets: FLOW_KEY_OFFSETS },
  ]);
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

test('the constants of the grant table equal the layouts of struct grant_header, grant_line, grant_set and pattern in the BPF object', () => {
  const size = LINE.words * 4;
  expect([struct('grant_header'), struct('grant_line'), struct('grant_set'), struct('pattern')]).toEqual([
    {
      size,
      offsets: {
        multiplier: HEADER.multiplier * 4,
        addend: HEADER.addend * 4,
        homes: HEADER.homes * 4,
      },
    },
    {
      size,
      offsets: {
        spilled: TABLE_LINE.spilled * 4,
        addresses: TABLE_LINE.addresses * 4,
        grants: TABLE_LINE.grants * 8,
      },
    },
    { size, offsets: { grants: SET_LINE.grants * 8, next: SET_LINE.next * 4 } },
    { size: PATTERN.words * 4, offsets: { names: PATTERN.names * 4, digest: PATTERN.digest * 4 } },
  ]);
  expect([PLACES, SET_PLACES]).toEqual([arrayLength('grant_line', 'addresses'), arrayLength('grant_set', 'grants')]);
});

test('the constants of the members equal the layouts of struct member_header, member_line and member_set in the BPF object', () => {
  const size = MEMBER_LINE.words * 4;
  const { refused, spilled, members } = MEMBER_FIELDS;
  expect([struct('member_header'), struct('member_line'), struct('member_set')]).toEqual([
    {
      size,
      offsets: {
        multiplier: HEADER.multiplier * 4,
        addend: HEADER.addend * 4,
        homes: HEADER.homes * 4,
        incomplete: INCOMPLETE * 4,
      },
    },
    { size, offsets: { spilled: spilled * 4, refused: refused * 4, members: members * 8 } },
    { size: MEMBER_SET.words * 4, offsets: { indexes: MEMBER_SET.indexes * 4, digest: MEMBER_SET.digest * 4 } },
  ]);
  expect(MEMBER_PLACES).toBe(arrayLength('member_line', 'members'));
});

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
  const ofIpv6 = typesOf(builtIpv6Object);
  expect([struct('settings', ofIpv6), struct('proof_packet', ofIpv6)]).toEqual([
    { size: IPV6_SETTINGS_BYTES, offsets: IPV6_SETTINGS_OFFSETS },
    { size: IPV6_PROOF_PACKET_BYTES, offsets: IPV6_PROOF_PACKET },
  ]);
});

test('the numbers of verdicts, reverse path modes, priorities, drop reasons, flow states and counters equal the enums in the BPF object', () => {
  expect(enumeration('verdict', 'VERDICT_')).toEqual(VERDICT_NUMBER);
  expect(enumeration('reverse_path', 'REVERSE_PATH_')).toEqual(REVERSE_PATH);
  expect(enumeration('priority', 'PRIORITY_')).toEqual(PRIORITY);
  expect(enumeration('drop_reason', 'DROP_')).toEqual({
    ...DROP_REASON,
    reasons: Math.max(...Object.values(DROP_REASON)) + 1,
  });
  expect(enumeration('flow_state', 'FLOW_')).toEqual({ ...FLOW_STATE, states: FLOW_STATES });
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
