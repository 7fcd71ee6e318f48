import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, bodyOf, type Schemas } from '../api/client.js';
import { usePolled } from '../api/polled.js';
import { type AskedPolicy, documentOf, isDraft, referenceOf } from '../asked-policy.js';
import { type FlowInText, flowInText } from '../flow-in-text.js';
import { addressOf, go, query } from '../router.js';
import { Empty, Failure, Panel, VerdictMark } from '../ui/parts.js';
import { Remedy } from '../ui/remedy.js';
import { verdictOf, Walk } from '../ui/walk.js';
import { DeniedLately } from './findings/denied-lately.js';

type Explained = Schemas['Explained'];

const FIELDS = ['src', 'dst', 'proto', 'dst_port', 'src_port', 'hostname'] as const;
type Fields = Readonly<Record<(typeof FIELDS)[number], string>>;

const fieldsIn = (search: URLSearchParams): Fields =>
  Object.fromEntries(FIELDS.map((name) => [name, search.get(name) ?? (name === 'proto' ? 'tcp' : '')])) as Fields;

/** The ICMP protocols, and the type of an echo request. */
const ECHO_REQUEST: ReadonlyMap<string, number> = new Map([
  ['icmp', 8],
  ['icmpv6', 128],
]);

/** The page Why: explains why a flow is allowed or denied, and which change would allow it. */
export function Why() {
  const fields = useSignal(fieldsIn(query.value));
  const of = query.value.get('of') ?? '';
  const asked = query.value.has('src') && query.value.has('dst') ? fieldsIn(query.value) : null;
  // A link to this page, and the back button, change the query.
  useEffect(() => {
    fields.value = fieldsIn(query.value);
  }, [query.value.toString()]);
  const submit = (event: Event) => {
    event.preventDefault();
    go(addressOf('why', { ...fields.value, of }));
  };
  const paste = (text: string) => {
    const found = flowInText(text);
    const known = Object.fromEntries(Object.entries(found).map(([name, value]) => [name, String(value)]));
    fields.value = { ...fieldsIn(new URLSearchParams()), ...known };
    if (found.src !== undefined && found.dst !== undefined) go(addressOf('why', { ...fields.value, of }));
  };
  return (
    <>
      <h1>Why is it blocked?</h1>
      <p class="muted">Paste a line of any log, or fill in the flow. The node walks the policy, step by step.</p>
      <form class="form-row" onSubmit={submit}>
        <label class="field wide">
          Any line with two addresses
          <input
            data-search
            placeholder="10.1.0.7:51012 → 10.2.0.1:443 tcp"
            spellcheck={false}
            autocomplete="off"
            onInput={(event) => paste(event.currentTarget.value)}
          />
        </label>
        <Field name="src" label="From" fields={fields} required />
        <Field name="dst" label="To" fields={fields} required />
        <label class="field narrow">
          Protocol
          <select
            value={fields.value.proto}
            onChange={(event) => {
              fields.value = { ...fields.value, proto: event.currentTarget.value };
            }}
          >
            {['tcp', 'udp', ...ECHO_REQUEST.keys()].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <Field name="dst_port" label="Port" fields={fields} numeric />
        <Field name="hostname" label="Name, if known" fields={fields} />
        <button type="submit" class="primary">
          Explain
        </button>
      </form>
      {of !== '' && (
        <p class="notice">
          This is about {isDraft(of) ? 'your draft' : 'a stored policy'}, not about the policy in force.{' '}
          <a href={addressOf('why', fields.value)}>Explain it by the policy in force.</a>
        </p>
      )}
      {asked === null ? <DeniedLately /> : <Answer key={JSON.stringify([asked, of])} flow={asked} of={of} />}
    </>
  );
}

type FieldProps = {
  readonly name: keyof FlowInText;
  readonly label: string;
  readonly fields: { value: Fields };
  readonly required?: boolean;
  readonly numeric?: boolean;
};

function Field({ name, label, fields, required = false, numeric = false }: FieldProps) {
  return (
    <label class={`field ${numeric ? 'narrow' : ''}`}>
      {label}
      <input
        required={required}
        inputMode={numeric ? 'numeric' : 'text'}
        pattern={numeric ? '[0-9]*' : undefined}
        spellcheck={false}
        autocomplete="off"
        value={fields.value[name]}
        onInput={(event) => {
          fields.value = { ...fields.value, [name]: event.currentTarget.value.trim() };
        }}
      />
    </label>
  );
}

function packetOf({ src, dst, proto, dst_port, src_port, hostname }: Fields): Schemas['ExplainPacket'] {
  const type = ECHO_REQUEST.get(proto);
  return {
    src,
    dst,
    proto: proto,
    ...(dst_port === '' || type !== undefined ? {} : { dst_port: Number(dst_port) }),
    ...(src_port === '' || type !== undefined ? {} : { src_port: Number(src_port) }),
    ...(type === undefined ? {} : { icmp_type: type, icmp_code: 0 }),
    ...(hostname === '' ? {} : { hostname }),
  };
}

function Answer({ flow, of }: { readonly flow: Fields; readonly of: AskedPolicy }) {
  const explained = usePolled<Explained>(
    async (signal) => {
      const policy = await documentOf(of, signal);
      const body = { ...packetOf(flow), ...(policy === undefined ? {} : { policy }) };
      return bodyOf(api.POST('/api/v1/policy/explain', { body, signal }));
    },
    null,
    JSON.stringify(flow),
  );
  const answer = explained.data.value;
  if (answer === null) return <Failure failure={explained.failure.value} />;
  const verdict = verdictOf(answer);
  return (
    <div class="columns">
      <Panel
        title={
          <>
            <VerdictMark verdict={verdict} /> <span class="muted">{flowText(flow)}</span>
          </>
        }
      >
        <p class="sentence">{answer.reason}</p>
        <Walk explained={answer} of={of} />
        {answer.unknown.length > 0 && <p class="muted">Not known for this answer: {answer.unknown.join(', ')}.</p>}
      </Panel>
      {verdict !== 'allow' && <WhatWouldHelp flow={flow} of={of} />}
    </div>
  );
}

const flowText = ({ src, dst, proto, dst_port, hostname }: Fields) =>
  `${src} → ${dst} ${dst_port === '' ? proto : `${proto}/${dst_port}`}${hostname === '' ? '' : ` as ${hostname}`}`;

/** Shows the smallest change that the node proposes to allow the flow. */
function WhatWouldHelp({ flow, of }: { readonly flow: Fields; readonly of: AskedPolicy }) {
  const { src, dst, proto, dst_port, hostname } = flow;
  const question = usePolled(
    async (signal) =>
      bodyOf(
        api.POST('/api/v1/policy/ask', {
          body: {
            policy: await referenceOf(of),
            from: [src],
            to: [dst],
            proto: proto,
            ...(dst_port === '' || ECHO_REQUEST.has(proto) ? {} : { ports: [Number(dst_port)] }),
            ...(hostname === '' ? {} : { name: hostname }),
          },
          signal,
        }),
      ),
    null,
    JSON.stringify(flow),
  );
  const obstacles = question.data.value?.obstacles ?? [];
  const obstacle = obstacles.find(({ remedy }) => remedy !== null);
  return (
    <Panel title="What would let it pass">
      <Failure failure={question.failure.value} />
      {question.data.value !== null && obstacle === undefined && (
        <Empty>{question.data.value.summary} No single rule changes that.</Empty>
      )}
      {obstacle !== undefined && <Remedy obstacle={obstacle} sources={[src]} of={of} />}
    </Panel>
  );
}
