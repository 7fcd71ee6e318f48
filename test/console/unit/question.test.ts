import { describe, expect, it } from 'vitest';
import { type Fields, problemsOf, questionText, readFields } from '../../../console/src/pages/ask/question.js';

const asked = (fields: Partial<Fields>): Fields => ({ kind: 'always', from: '', to: '', service: '', ...fields });

describe('a question of the page Ask', () => {
  it.each<[Partial<Fields>, object]>([
    [{}, {}],
    [{ from: 'any', to: ' Any ', service: 'ANY' }, {}],
    [{ from: 'guest wifi' }, { from: { group: 'guest wifi' } }],
    [{ from: '10.1.0.7, 10.2.0.0/16' }, { from: ['10.1.0.7', '10.2.0.0/16'] }],
    [{ to: '10.9.0.5 db.example.com' }, { to: ['10.9.0.5'], name: 'db.example.com' }],
    [{ service: '443' }, { ports: ['443'] }],
    [{ service: 'UDP/53, 1000 - 2000' }, { proto: 'udp', ports: ['53', '1000-2000'] }],
    [{ service: 'icmp/8' }, { proto: 'icmp', icmp_types: [8] }],
    [{ service: '47' }, { ports: ['47'] }],
    [{ service: 'esp' }, { proto: 'esp' }],
    [{ kind: 'who', from: '10.1.0.7', to: '10.9.0.5' }, { to: ['10.9.0.5'] }],
    [{ kind: 'what', from: '10.1.0.7', to: '10.9.0.5' }, { from: ['10.1.0.7'] }],
  ])('has of the fields %j the flows %j', (fields, flows) => {
    expect(readFields(asked(fields))).toEqual({ flows, problems: [] });
  });

  it('is refused at the field whose form is not readable', () => {
    const { flows, problems } = readFields(asked({ to: 'a.example b.example', service: 'tcp/22/23' }));
    expect([flows, problems.map(({ field }) => field)]).toEqual([null, ['to', 'service']]);
  });

  it('has the problems of the node at its fields, and leaves out those of the policy', () => {
    const problem = (pointer: string) => ({ pointer, code: 'invalid_value' as const, message: pointer });
    const problems = ['/from/group', '/name', '/ports/1', '/policy/policy'].map(problem);
    expect(problemsOf({ problems }).map(({ field }) => field)).toEqual(['from', 'to', 'service']);
  });

  it('is a sentence', () => {
    expect(questionText(asked({ kind: 'who', to: '10.9.0.5', service: 'tcp/22' }))).toBe(
      'Who can reach 10.9.0.5 on tcp/22?',
    );
    expect(questionText(asked({ from: 'office' }))).toBe('Can office always reach every destination?');
  });
});
