import { addressesText } from '../../address-set.js';
import type { Problem, Schemas } from '../../api/client.js';

/** The kinds of question, in the order in which the page offers them. */
export const KINDS = {
  who: 'Who can reach it?',
  what: 'What can it reach?',
  always: 'Does it always pass?',
  never: 'Is it never possible?',
} as const;
export type Kind = keyof typeof KINDS;

/** The texts of the input fields. An empty text and `any` mean every value. */
export type Fields = { readonly kind: Kind; readonly from: string; readonly to: string; readonly service: string };
export type FieldName = 'from' | 'to' | 'service';

/**
 * The flows that a question is about, in the form of the API (`POST /api/v1/policy/ask`) and of assertions.
 */
export type Flows = Omit<Schemas['PolicyQuestion'], 'policy' | 'limit'>;
export type FieldProblem = { readonly field: FieldName; readonly message: string };

export const fieldsIn = (search: URLSearchParams): Fields => {
  const kind = search.get('kind') ?? '';
  return {
    kind: kind in KINDS ? (kind as Kind) : 'who',
    from: search.get('from') ?? '',
    to: search.get('to') ?? '',
    service: search.get('service') ?? '',
  };
};

/** Returns the input fields of a kind of question. The question is about every value of the other fields. */
export const fieldsOf = (kind: Kind): readonly FieldName[] =>
  kind === 'who' ? ['to', 'service'] : kind === 'what' ? ['from', 'service'] : ['from', 'to', 'service'];

const ANY = 'any';
/**
 * Matches an IPv4 address or network, or any text with colons, as IPv6 has. The node checks whether it is a
 * valid address.
 */
const ADDRESS = /^(?:[\d.]+|[\da-f.]*:[\da-f:.]*)(?:\/\d*)?$/i;
const partsOf = (text: string) => text.split(/[\s,]+/).filter((part) => part !== '');

/**
 * Parses the input fields. Checks only their form; the node checks the values. `flows` is null if a field has
 * a problem.
 */
export function readFields({ kind, ...texts }: Fields): {
  readonly flows: Flows | null;
  readonly problems: readonly FieldProblem[];
} {
  const asked = (name: FieldName) => {
    const text = fieldsOf(kind).includes(name) ? texts[name].trim() : '';
    return text.toLowerCase() === ANY ? '' : text;
  };
  const [from, to, service] = [asked('from'), asked('to'), asked('service')];
  const problems: FieldProblem[] = [];
  const destinations = partsOf(to);
  const names = destinations.filter((part) => !ADDRESS.test(part));
  const addresses = destinations.filter((part) => ADDRESS.test(part));
  if (names.length > 1)
    problems.push({ field: 'to', message: 'A question can have one name, beside addresses and networks.' });
  const flows = serviceOf(service);
  if (flows === null)
    problems.push({ field: 'service', message: 'Write a service as tcp/22, udp/53,123, icmp/8 or icmpv6/128.' });
  if (problems.length > 0) return { flows: null, problems };
  const source =
    from === '' ? {} : { from: partsOf(from).every((part) => ADDRESS.test(part)) ? partsOf(from) : { group: from } };
  const asking = {
    ...source,
    ...(addresses.length === 0 ? {} : { to: addresses }),
    ...(names[0] === undefined ? {} : { name: names[0] }),
    ...flows,
  };
  return { flows: asking, problems };
}

/** Reads a service as `weir policy ask` does. Null: the text has another form. */
function serviceOf(text: string): Pick<Flows, 'proto' | 'ports' | 'icmp_types'> | null {
  if (text === '') return {};
  const [name = '', values, ...rest] = text.toLowerCase().split('/');
  if (rest.length > 0 || name === '' || values === '') return null;
  if (values === undefined && /^[\d,\s-]+$/.test(name)) return { ports: portsIn(name) };
  const proto = /^\d+$/.test(name) ? Number(name) : name;
  if (values === undefined) return { proto };
  if (name !== 'icmp' && name !== 'icmpv6') return { proto, ports: portsIn(values) };
  const types = partsOf(values);
  return types.every((type) => /^\d+$/.test(type)) ? { proto, icmp_types: types.map(Number) } : null;
}

const portsIn = (text: string) => partsOf(text.replaceAll(/\s*-\s*/g, '-'));

const FIELD_OF: Readonly<Record<string, FieldName>> = {
  from: 'from',
  to: 'to',
  name: 'to',
  proto: 'service',
  ports: 'service',
  icmp_types: 'service',
};

/** Returns the problems in a refusal of the node that belong to an input field. */
export function problemsOf({ problems = [] }: Pick<Problem, 'problems'>): readonly FieldProblem[] {
  return problems.flatMap(({ pointer, message }) => {
    const field = FIELD_OF[pointer.split('/')[1] ?? ''];
    return field === undefined ? [] : [{ field, message }];
  });
}

const orAny = (text: string, any: string) => (text.trim() === '' || text.trim().toLowerCase() === ANY ? any : text);

/** Returns the question as a sentence, such as "Who can reach 10.9.0.5 on tcp/22?". */
export function questionText({ kind, from, to, service }: Fields): string {
  const every = kind === 'always' ? 'every' : 'any';
  const source = orAny(from, `${every} source`);
  const destination = orAny(to, `${every} destination`);
  const on = orAny(service, '') === '' ? '' : ` on ${service}`;
  switch (kind) {
    case 'who':
      return `Who can reach ${destination}${on}?`;
    case 'what':
      return `What can ${source} reach${on}?`;
    case 'always':
      return `Can ${source} always reach ${destination}${on}?`;
    case 'never':
      return `Is it true that ${source} can never reach ${destination}${on}?`;
  }
}

/** The maximum number of networks in the sentence of an answer. */
const FEW_SOURCES = 3;

/** Returns the answer as a sentence in the words of the question. */
export function answerText(
  kind: Kind,
  {
    answer,
    complete,
    passing_sources: sources,
  }: Pick<Schemas['PolicyAnswer'], 'answer' | 'complete' | 'passing_sources'>,
): string {
  if (kind === 'always')
    return { always: 'Yes, always.', sometimes: 'No, only a part passes.', never: 'No, nothing passes.' }[answer];
  if (kind === 'never')
    return { never: 'Yes, nothing passes.', sometimes: 'No, a part passes.', always: 'No, everything passes.' }[answer];
  if (kind === 'what') return { never: 'Nothing.', sometimes: 'A part.', always: 'Everything.' }[answer];
  const isKnown = complete && sources !== null && sources.omitted === 0 && sources.networks.length <= FEW_SOURCES;
  const some = isKnown ? `Only ${addressesText(sources)} can.` : 'Some sources can.';
  return { never: 'No source can.', sometimes: some, always: 'Every source can.' }[answer];
}

const idOf = (...parts: readonly string[]) =>
  parts
    .join('-')
    .toLowerCase()
    .replaceAll(/[^a-z0-9.*]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, 100);

/**
 * Returns an assertion that fails when the answer changes: that flows always or never pass, or that they pass
 * only from the present sources. Null if no assertion can express the answer.
 */
export function assertionOf(
  fields: Fields,
  flows: Flows,
  answer: Schemas['PolicyAnswer'],
): Readonly<Record<string, unknown>> | null {
  const { kind, from, to, service } = fields;
  switch (kind) {
    case 'always':
    case 'never':
      return { id: idOf(kind, from, to, service), [kind]: flows };
    case 'what':
      return null;
    case 'who': {
      if (answer.answer === 'never') return { id: idOf('never', to, service), never: flows };
      const { passing, passing_omitted: omitted, complete } = answer;
      if (omitted > 0 || !complete || passing.some(({ sources }) => sources.omitted > 0)) return null;
      const networks = [...new Set(passing.flatMap(({ sources }) => sources.networks))];
      const isOfIpv6 = (network: string) => network.includes(':');
      // A list with every IPv4 address says something only if it leaves out IPv6 addresses.
      const isEverything = networks.includes('0.0.0.0/0') && (networks.includes('::/0') || !networks.some(isOfIpv6));
      return isEverything ? null : { id: idOf('only', to, service), only: { from: networks, ...flows } };
    }
  }
}
