import type { ComponentChildren } from 'preact';
import { type AddressSet, addressesText } from '../address-set.js';
import type { Schemas } from '../api/client.js';
import { type AskedPolicy, policyIdOf } from '../asked-policy.js';
import { full, protocol } from '../format.js';
import { addressOf } from '../router.js';
import { type Verdict, VerdictMark } from './parts.js';

type ServiceSet = Schemas['ServiceSet'];
type FlowCondition = Schemas['FlowCondition'];
/**
 * A set of flows: every combination of its sources, destinations and services. The answers of diff, ask, lint
 * and assertions contain such sets.
 */
type Region = Pick<
  Schemas['PolicyAnswer']['passing'][number],
  'sources' | 'destinations' | 'services' | 'source_ports' | 'conditions' | 'unless' | 'flows' | 'example'
>;
type Decider = Schemas['FlowDecider'] & { readonly inspected?: boolean };

/** Returns services as text: "tcp/443, tcp/8000-8100"; "any service" if the set has all services. */
function servicesText({ services, except, omitted }: ServiceSet): string {
  const more = omitted > 0 ? ` and ${omitted} more` : '';
  if (except.length > 0) return `any service except ${except.join(', ')}${more}`;
  return services.length === 1 && services[0] === 'any' ? 'any service' : `${services.join(', ')}${more}`;
}

function conditionText(condition: FlowCondition): string {
  switch (condition.kind) {
    case 'hostname':
      return `the destination is granted for ${condition.pattern}`;
    case 'selected':
      return `the source is selected by ${JSON.stringify(condition.selector)}`;
    case 'unresolved':
      return `the selector ${JSON.stringify(condition.selector)} is not resolved`;
    case 'deny_only':
      return 'the source is deny-only';
    case 'tls': {
      const verb = { hidden: 'hides the certificate for', matches: 'matches', may_match: 'may match' }[condition.state];
      return `TLS ${verb} ${JSON.stringify(condition.tls)}`;
    }
  }
}

/** Shows the flows of a region as "10.1.0.0/24 → any tcp/8080", with its conditions. */
function RegionFlows({ region }: { readonly region: Region }) {
  const { sources, destinations, services, source_ports: ports, conditions, unless } = region;
  return (
    <>
      <span class="region-flows">
        <code>{addressesText(sources)}</code>
        <span class="region-arrow">
          <span aria-hidden="true">→</span>
          <span class="visually-hidden"> to </span>
        </span>
        <code>{addressesText(destinations)}</code> <code class="region-service">{servicesText(services)}</code>
        {ports.length > 0 && <span class="muted"> from port {ports.join(', ')}</span>}
      </span>
      {conditions.length > 0 && <p class="region-when">if {conditions.map(conditionText).join(' and ')}</p>}
      {unless.map((all) => (
        <p key={JSON.stringify(all)} class="region-when">
          unless {all.map(conditionText).join(' and ')}
        </p>
      ))}
    </>
  );
}

const verdictOf = ({ decision, mode }: Pick<Decider, 'decision' | 'mode'>): Verdict =>
  decision === 'allow' ? 'allow' : mode === 'audit' ? 'would_deny' : 'deny';

type DeciderProps = { readonly decider: Decider; readonly of?: AskedPolicy };

/** Shows a verdict and the rule or default that decides. The name is a link to the rule in the policy. */
export function DeciderName({ decider, of }: DeciderProps) {
  return (
    <span class="decider">
      <VerdictMark verdict={verdictOf(decider)} /> by{' '}
      <RuleName group={decider.source_group} rule={decider.rule} {...(of !== undefined && { of })} />
      {decider.inspected === true && <span class="muted"> and inspected</span>}
    </span>
  );
}

type RuleNameProps = { readonly group: string | null; readonly rule: string | null; readonly of?: AskedPolicy };

/**
 * Shows the name of a rule or default: "office / web", "the default of office", or "the default of the
 * policy".
 */
export function RuleName({ group, rule, of = '' }: RuleNameProps) {
  if (group === null) return <>the default of the policy</>;
  if (rule === null) return <>the default of {group}</>;
  return (
    <a href={addressOf('policy', { id: policyIdOf(of), group, rule })}>
      {group} / {rule}
    </a>
  );
}

/**
 * Makes a sentence of a message of the node, whose first letter is in lower case. Does not change a name at
 * its start.
 */
export function sentence(text: string): string {
  const isName = /^\S*[/_]/.test(text);
  return `${isName ? text.charAt(0) : text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}

/** A larger number of sources is not shown, because it is not helpful. */
const MANY_SOURCES = 1e7;

/**
 * Returns the number of sources as text: "256 sources"; empty for one source and for more than
 * `MANY_SOURCES`.
 */
function sourceCount({ addresses }: AddressSet): string {
  const count = Number(addresses);
  return count === 1 || count >= MANY_SOURCES ? '' : `${full(count)} sources, `;
}

/** Returns the link to the page Why with the example flow of a region. */
function whyAddress({ src, dst, proto, src_port, dst_port, hostname }: Region['example'], of: AskedPolicy): string {
  const text = (value: number | undefined) => (value === undefined ? undefined : String(value));
  return addressOf('why', {
    src,
    dst,
    proto: protocol(proto),
    dst_port: text(dst_port),
    // Omit the source port 40000: the node uses it in examples if the source port does not matter.
    src_port: src_port === 40_000 ? undefined : text(src_port),
    hostname,
    of,
  });
}

/** A link to the page Why with an example flow of a region. */
function ExampleFlow({ region: { example }, of }: { readonly region: Region; readonly of: AskedPolicy }) {
  const { src, dst, proto, dst_port } = example;
  const service = dst_port === undefined ? protocol(proto) : `${protocol(proto)}/${dst_port}`;
  return (
    <a href={whyAddress(example, of)}>
      for example {src} → {dst} {service}
    </a>
  );
}

type RegionRowProps = { readonly region: Region; readonly of?: AskedPolicy; readonly children?: ComponentChildren };

/** A row for one region, with the number of its sources, an example flow, and the text in `children`. */
export function RegionRow({ region, of = '', children }: RegionRowProps) {
  return (
    <li class="region">
      <RegionFlows region={region} />
      {children}
      <p class="region-more muted">
        {sourceCount(region.sources)}
        <ExampleFlow region={region} of={of} />
      </p>
    </li>
  );
}
