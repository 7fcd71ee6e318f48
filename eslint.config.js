import tseslint from 'typescript-eslint';

const noAbortSignalAny = {
  object: 'AbortSignal',
  property: 'any',
  message: 'Node 20 may free its signal while it is in use: use `withJoinedSignal`.',
};
const noCoerce = {
  object: 'z',
  property: 'coerce',
  message:
    '`Number` reads an empty text as 0: read a number of a query with `wholeNumber` (src/api/requests/query-parameters.ts).',
};
const noSpread = [
  {
    selector: "CallExpression[callee.object.name='Math'] > SpreadElement",
    message:
      'Each value takes space on the stack, so a long list throws a RangeError: use `largest` or `smallest` (src/arrays/extremes.ts).',
  },
  {
    selector: 'CallExpression[callee.property.name=/^(push|unshift)$/] > SpreadElement',
    message:
      'Each item takes space on the stack, so a long list throws a RangeError: use `append` (src/arrays/append.ts).',
  },
];
const noEndlessMkdir = {
  selector: 'CallExpression[callee.name=/^mkdir(Sync)?$/] Property[key.name="recursive"]',
  message: 'Node never returns for a folder below `/proc`: use `makeFolders` (src/files/make-folders.ts).',
};
const noRegExpAsValue = [':matches(Property, ArrayExpression) > Literal[regex]', '> Literal[regex]'].map((inside) => ({
  selector: `CallExpression[callee.property.name=/^to(MatchObject|Equal|StrictEqual)$/] ${inside}`,
  message: '`toMatchObject` passes for each text, and the others for none: use `expect.stringMatching`.',
}));
const noOtherYaml = {
  name: 'yaml',
  importNames: ['parse', 'parseDocument', 'parseAllDocuments', 'Parser', 'Composer'],
  message: 'A deep text ends the process with a RangeError: read YAML with `parseYaml` (src/config/yaml-text.ts).',
};
const noUncheckedJson = {
  selector:
    "TSAsExpression[typeAnnotation.type!='TSUnknownKeyword'] > CallExpression[callee.object.name='JSON'][callee.property.name='parse']",
  message:
    'Validate JSON before its use: read a record with a `RecordKind` (src/store/records/record-kind.ts), and any other text with a schema.',
};

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', 'docs/', 'src/cluster/etcd/generated/', '.weir/', '**/*.js', '**/*.cjs'] },
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: {
      parserOptions: { project: ['./tsconfig.json', './console/tsconfig.json'], tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { arguments: false } }],
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      'no-restricted-properties': ['error', noAbortSignalAny],
    },
  },
  {
    // Code of the browser: an event handler may return a promise, and the defect of `AbortSignal.any` is one of
    // Node 20.
    files: ['console/src/**'],
    rules: {
      '@typescript-eslint/no-misused-promises': [
        'error',
        { checksVoidReturn: { arguments: false, attributes: false } },
      ],
      'no-restricted-properties': 'off',
    },
  },
  {
    files: ['src/**/*.ts', 'statecharts/**/*.ts', 'bench/**/*.ts'],
    // The parameters of libc functions are those of the library.
    ignores: ['src/libc/bpf/libbpf.ts'],
    rules: {
      'max-params': ['error', 6],
    },
  },
  {
    files: ['src/**/*.ts', 'statecharts/**/*.ts'],
    rules: {
      'no-restricted-properties': ['error', noAbortSignalAny, noCoerce],
      'no-restricted-syntax': ['error', noUncheckedJson, noEndlessMkdir, ...noSpread],
      'no-restricted-imports': ['error', { paths: [noOtherYaml] }],
    },
  },
  {
    // Text that this process has written or validated before, or of which each member is `unknown`.
    files: [
      'src/config/policy/policy-text.ts',
      'src/dataplane/guard/nftables-guard.ts',
      'src/kubernetes/api-server/api-session.ts',
      'src/node/policy-file.ts',
      'src/observe/log/journal.ts',
      'src/policy/document/json-scanner.ts',
      'src/policy/model/sources/selector.ts',
      'src/kubernetes/operations/group-members.ts',
      'src/kubernetes/operations/token-expiry.ts',
      'src/service-plane/policy-image.ts',
    ],
    rules: { 'no-restricted-syntax': ['error', noEndlessMkdir, ...noSpread] },
  },
  {
    files: ['src/config/yaml-text.ts'],
    rules: { 'no-restricted-imports': 'off' },
  },
  {
    files: ['test/**/*.ts'],
    ignores: ['test/skip-unless.ts'],
    rules: {
      'no-restricted-syntax': [
        'error',
        ...[
          'MemberExpression[property.name=/^(skip|skipIf|runIf|todo)$/][object.name=/^(test|it|describe|suite)$/]',
          'ArrowFunctionExpression > ObjectPattern > Property[key.name="skip"]',
        ].map((selector) => ({
          selector,
          message: 'Give the reason: skip a test with `skipUnless` (test/skip-unless.ts).',
        })),
      ],
    },
  },
  {
    files: ['test/**/*.ts', 'bench/**/*.ts'],
    rules: {
      'no-restricted-syntax': ['error', ...noRegExpAsValue],
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
    },
  },
);
