import { u32At } from '#arrays/read.js';
import type { Family } from '#contracts/policy/policy-model.js';
import { Btf, type StructLayout } from '#dataplane/abi/btf.js';
import { encodeSettings, type Settings } from '#dataplane/abi/settings.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check } from '#libc/libc.js';
import { addressOf, memoryAt } from '#libc/library.js';
import { built } from '#threads/built-file.js';
import { lacksModuleBtf } from './kernel-functions.js';

export const builtObject = built('bpf/weir.bpf.o');
export const builtIpv6Object = built('bpf/weir_ipv6.bpf.o');
/**
 * Path of the compiled BPF object that lists third-party hooks (hooks of other software that forwarded
 * packets pass).
 */
export const builtThirdPartyProgram = built('bpf/third_party_hooks.bpf.o');

/**
 * The maps that Weir pins. Do not rename them, because the next process finds them by name. `ways` has the
 * next hops of direct forwarding. `joins` has the spliced connections that the datapath forwards, and
 * `joiners` the deadlines of the splice threads.
 */
export const MAPS = [
  'program',
  'active',
  'flows',
  'tallies',
  'flow_tags',
  'ways',
  'packets',
  'fragments',
  'no_fragments',
  'hits',
  'rank_hits',
  'vitals',
  'flow_shares',
  'events',
  'budgets',
  'counters',
  'sweep',
  'revert',
  'grants',
  'patterns',
  'third_names',
  'members',
  'member_sets',
  'third_indexes',
  'predecessors',
  'ipv6_programs',
  'joins',
  'joiners',
  'ports',
  'layouts',
] as const;
export type MapName = (typeof MAPS)[number];
/** BPF maps that Weir does not pin, so the datapath of a later process cannot take them over. */
type UnpinnedMapName = 'proof' | 'others' | 'routes';
const PROGRAMS = [
  'weir_ingress',
  'weir_egress',
  'weir_start_sweep',
  'weir_sweep',
  'weir_cut',
  'weir_migrate_count',
  'weir_migrate_flow',
  'weir_bench',
  'weir_prove',
  'weir_set_revert',
  'weir_join',
  'weir_see_routes',
  'weir_forward',
] as const;
/** The programs of the BPF object of IPv6. */
export const IPV6_PROGRAMS = [
  'weir_ingress',
  'weir_egress',
  'weir_full_path',
  'weir_start_sweep',
  'weir_sweep',
  'weir_cut',
  'weir_prove',
] as const;
export type ProgramName = (typeof PROGRAMS)[number] | (typeof IPV6_PROGRAMS)[number];
/** The programs of the datapath in the BPF object of each family. */
const PROGRAMS_OF: Readonly<Record<Family, readonly ProgramName[]>> = { ipv4: PROGRAMS, ipv6: IPV6_PROGRAMS };
type ThirdPartyProgramName = 'weir_others';

export type MapShape = Readonly<Record<'type' | 'keySize' | 'valueSize' | 'maxEntries', number>>;

export type MapLayouts = { readonly key: StructLayout; readonly value: StructLayout };
export type MapDescription = MapShape & MapLayouts;

const LOG_BYTES = 1 << 20;
const PROGRAM_TYPE_NETFILTER = 32;
const ATTACH_NETFILTER = 45;
// Size of `struct bpf_object_open_opts` and offsets of its log fields, in bytes.
const OPEN_OPTIONS = { size: 80, logBuffer: 56, logSize: 64 } as const;

/** A compiled BPF object file. After the construction, set map sizes and settings, and then call `load`. */
export class BpfObject {
  readonly #pointer: bigint;
  readonly #log = new Uint8Array(LOG_BYTES);
  #btf: Btf | undefined;
  readonly #layouts = new Map<MapName, MapLayouts>();
  readonly #options = new Uint8Array(OPEN_OPTIONS.size);

  /** `family`: the IP family of an object of the datapath. */
  constructor(
    readonly path: string,
    readonly family: Family = 'ipv4',
  ) {
    const view = new DataView(this.#options.buffer);
    view.setBigUint64(0, BigInt(OPEN_OPTIONS.size), true);
    view.setBigUint64(OPEN_OPTIONS.logBuffer, addressOf(this.#log), true);
    view.setBigUint64(OPEN_OPTIONS.logSize, BigInt(LOG_BYTES), true);
    const pointer = libbpf().bpf_object__open_file(path, this.#options);
    if (pointer === null) throw new KernelFailure(`open ${path}`, 2);
    this.#pointer = pointer;
  }

  resize(name: MapName, entries: number): void {
    check(`resize map ${name}`, libbpf().bpf_map__set_max_entries(this.#map(name), entries));
  }

  /** Sets the value size of a map. Works only for a map whose values have no BTF type. */
  resizeValues(name: MapName, bytes: number): void {
    check(`resize values of map ${name}`, libbpf().bpf_map__set_value_size(this.#map(name), bytes));
  }

  /** Returns the shape that the map will have after `load`, and the layouts of its keys and values. */
  describe(name: MapName): MapDescription {
    const map = this.#map(name);
    return {
      ...this.layoutsOf(name),
      type: libbpf().bpf_map__type(map),
      keySize: libbpf().bpf_map__key_size(map),
      valueSize: libbpf().bpf_map__value_size(map),
      maxEntries: libbpf().bpf_map__max_entries(map),
    };
  }

  layoutsOf(name: MapName): MapLayouts {
    const known = this.#layouts.get(name);
    if (known !== undefined) return known;
    const map = this.#map(name);
    const types = this.#types();
    const layouts = {
      key: types.layoutOf(libbpf().bpf_map__btf_key_type_id(map)),
      value: types.layoutOf(libbpf().bpf_map__btf_value_type_id(map)),
    };
    this.#layouts.set(name, layouts);
    return layouts;
  }

  /** Makes `load` use the existing map behind `fd`, and not create a new map. */
  reuse(name: MapName, fd: number): void {
    // Read the layouts first. After `bpf_map__reuse_fd`, libbpf returns type ids that refer to the BTF of
    // the process that created the map.
    this.layoutsOf(name);
    check(`reuse map ${name}`, libbpf().bpf_map__reuse_fd(this.#map(name), fd));
  }

  configure(settings: Settings): void {
    const size = new BigUint64Array(1);
    const value = libbpf().bpf_map__initial_value(this.#map('.rodata.settings'), size);
    const encoded = encodeSettings(settings, this.family);
    if (value === null || size[0] !== BigInt(encoded.length)) {
      throw new Error(
        `load ${this.path}: the BPF object belongs to another build of Weir, because its settings have ${size[0]} bytes`,
      );
    }
    new Uint8Array(memoryAt(value, encoded.length)).set(encoded);
  }

  /**
   * Selects the programs of the datapath that `load` loads; the kernel takes up to 0.1 s to verify one. Sets
   * the type of the forward judge (a netfilter program), because libbpf before 1.2 cannot derive it from the
   * section name.
   */
  select(names: readonly ProgramName[]): void {
    const programs = PROGRAMS_OF[this.family];
    if (programs.includes('weir_forward')) {
      const judge = this.#program('weir_forward');
      check('set the type of weir_forward', libbpf().bpf_program__set_type(judge, PROGRAM_TYPE_NETFILTER));
      libbpf().bpf_program__set_expected_attach_type(judge, ATTACH_NETFILTER);
    }
    for (const name of programs) {
      const isLoaded = names.includes(name);
      check(`choose whether ${name} is loaded`, libbpf().bpf_program__set_autoload(this.#program(name), isLoaded));
    }
  }

  load(): void {
    if (lacksModuleBtf()) this.#skipModules();
    check(`load ${this.path}`, libbpf().bpf_object__load(this.#pointer), () => this.#verifierLog());
  }

  mapFd(name: MapName | UnpinnedMapName): number {
    return check(`find map ${name}`, libbpf().bpf_map__fd(this.#map(name)));
  }

  programFd(name: ProgramName | ThirdPartyProgramName): number {
    return check(`find program ${name}`, libbpf().bpf_program__fd(this.#program(name)));
  }

  /** Stores a BPF program in an entry of a map. BPF programs call the programs in the map by tail calls. */
  setProgram(map: 'predecessors' | 'ipv6_programs', index: number, fd: number): void {
    const [key, value] = [index, fd].map((number) => new Uint8Array(Uint32Array.of(number).buffer));
    const result = libbpf().bpf_map_update_elem(this.mapFd(map), key as Uint8Array, value as Uint8Array, 0);
    check(`store a program in map ${map}`, result);
  }

  close(): void {
    libbpf().bpf_object__close(this.#pointer);
  }

  /**
   * Makes `load` resolve functions without the kernel's modules. libbpf before 1.3 fails if the kernel
   * refuses the BTF of modules, also for a weak function. libbpf requests that BTF only once for an object.
   * So this method makes libbpf request the BTF for a function that does not exist, and ignores the failure.
   */
  #skipModules(): void {
    const program = libbpf().bpf_object__next_program(this.#pointer, null);
    if (program !== null) libbpf().bpf_program__set_attach_target(program, 0, 'weir_absent');
  }

  #types(): Btf {
    if (this.#btf !== undefined) return this.#btf;
    const btf = libbpf().bpf_object__btf(this.#pointer);
    const size = new Uint32Array(1);
    const bytes = btf === null ? null : libbpf().btf__raw_data(btf, size);
    if (bytes === null) throw new Error(`load ${this.path}: the BPF object has no BTF type information`);
    this.#btf = new Btf(new Uint8Array(memoryAt(bytes, u32At(size, 0))));
    return this.#btf;
  }

  #program(name: ProgramName | ThirdPartyProgramName): bigint {
    const program = libbpf().bpf_object__find_program_by_name(this.#pointer, name);
    if (program === null) throw new KernelFailure(`find program ${name} in ${this.path}`, 2);
    return program;
  }

  #map(name: MapName | UnpinnedMapName | '.rodata.settings'): bigint {
    const map = libbpf().bpf_object__find_map_by_name(this.#pointer, name);
    if (map === null) throw new KernelFailure(`find map ${name} in ${this.path}`, 2);
    return map;
  }

  /** Returns the last 4,000 characters of the verifier's log, which contain the error of a failed `load`. */
  #verifierLog(): string {
    const end = this.#log.indexOf(0);
    return new TextDecoder().decode(this.#log.subarray(0, end < 0 ? LOG_BYTES : end)).slice(-4000);
  }
}
