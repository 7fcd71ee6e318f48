/** @type {import('dependency-cruiser').IConfiguration} */
const only = (name, from, allowed, comment) => ({
  name,
  comment,
  severity: 'error',
  from: { path: from },
  to: { path: '^(src|statecharts|test|bench|scripts)/', pathNot: [from, ...allowed] },
});
const npm = ['npm', 'npm-dev', 'npm-no-pkg', 'npm-unknown'];
module.exports = {
  forbidden: [
    { name: 'no-circular', severity: 'error', comment: 'A cycle has no first thing to read. Move the shared type down.', from: {}, to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } } },
    only('policy-is-pure', '^src/policy/', [], 'The policy model and compiler know nothing about actors, kernels or HTTP.'),
    only('charts-know-only-types', '^statecharts/', ['^src/policy/', '^src/dataplane/datapath', '^src/bus/'], 'A chart that imports an implementation is no longer a drawing.'),
    only('bus-knows-only-messages', '^src/bus/', ['^src/policy/'], 'The bus carries messages; it does not interpret them.'),
    only('dataplane-knows-only-policy', '^src/dataplane/', ['^src/policy/'], 'The dataplane is driven; it never calls back up.'),
    only('edges-know-only-policy', '^src/(dns|service-plane|kubernetes|cluster|store|observe)/', ['^src/policy/'], 'An edge is driven by its actor; it knows nobody else.'),
    only('config-knows-nobody', '^src/config/', [], 'Configuration is a value; reading it needs none of the parts.'),
    only('actors-bind', '^src/actors/', ['^statecharts/', '^src/(policy|bus|dataplane|dns|service-plane|kubernetes|cluster|store)/'], 'Actors bind charts to effects. They never reach into HTTP.'),
    only('api-is-an-edge', '^src/api/', ['^src/(policy|bus|observe)/'], 'Routes talk to the system through what main.ts hands them.'),
    only('cli-is-a-client', '^src/cli/', ['^src/config/', '^src/main[.]ts$'], 'The command line is a client of the API; it starts main and knows no part.'),
    {
      name: 'charts-import-types-only', severity: 'error', comment: 'Types only: a chart must load without loading the compiler.',
      from: { path: '^statecharts/' }, to: { path: '^src/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'pure-code-has-no-io', severity: 'error', comment: 'Effects belong in src/dataplane/kernel, src/actors, src/store or src/api.',
      from: { path: '^(statecharts|src/policy|src/bus|src/dataplane/program)/' }, to: { dependencyTypes: ['core'] },
    },
    {
      name: 'one-door-to-the-kernel', severity: 'error', comment: 'One place to read and audit. The command line builds namespaces for the quick start.',
      from: { pathNot: '^(src/dataplane/kernel|src/cli|test|bench|scripts)/' }, to: { path: '(^node:child_process$|^child_process$|node_modules/koffi)' },
    },
    {
      name: 'policy-has-two-packages', severity: 'error', comment: 'The compiler is plain TypeScript; schemas need zod, regular expressions RE2.',
      from: { path: '^src/policy/' }, to: { dependencyTypes: npm, pathNot: 'node_modules/(zod|re2js)/' },
    },
    {
      name: 'charts-use-xstate-only', severity: 'error', comment: 'A chart needs a statechart library and nothing else.',
      from: { path: '^statecharts/' }, to: { dependencyTypes: npm, pathNot: 'node_modules/xstate/' },
    },
    {
      name: 'only-the-api-speaks-http', severity: 'error', comment: 'HTTP stops at src/api.',
      from: { pathNot: '^(src/api|test|scripts)/' }, to: { path: 'node_modules/(@fastify|fastify)' },
    },
    { name: 'only-the-cli-imports-main', severity: 'error', comment: 'main.ts knows everyone; only the command that starts it knows main.ts.', from: { pathNot: '^(src/cli|test|bench)/' }, to: { path: '^src/main[.]ts$' } },
    { name: 'no-src-to-test', severity: 'error', comment: 'Tests know the code, never the other way.', from: { path: '^(src|statecharts)/' }, to: { path: '^(test|bench|scripts)/' } },
    { name: 'not-to-unresolvable', severity: 'error', comment: 'Every import leads somewhere.', from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['weir-source', 'types', 'import', 'node', 'default'], extensions: ['.ts', '.js', '.cjs', '.json'] },
  },
};
