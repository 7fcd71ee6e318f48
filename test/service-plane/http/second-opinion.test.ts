import { describe, expect, it } from 'vitest';
import { expectEqual } from '#test/expect-equal.js';
import { converse } from './conversation.js';
import { nodeView } from './llhttp.js';
import { MESSAGES } from './messages.js';
import { differenceFromNode } from './node-parser-comparison.js';
import { bytesOf, cutsOf } from './pieces.js';
import { SMUGGLING } from './smuggling.js';

const HOST = 'Host: a.test\r\n';

describe("comparison of the service plane's HTTP parser with Node's parser", () => {
  it.each(MESSAGES)(
    'the HTTP parsers of the service plane and of Node read equal requests from the client bytes %j and from the forwarded bytes',
    (text) => {
      const bytes = bytesOf(text);
      const conversation = converse([bytes]);
      expect([conversation.fault, conversation.exchanges.every(({ isComplete }) => isComplete)]).toEqual([null, true]);
      expect(conversation.exchanges.length).toBeGreaterThan(0);
      expect(differenceFromNode(bytes, conversation)).toBeNull();
    },
  );

  it.each(MESSAGES)(
    'the HTTP parser of the service plane reads equal requests from every split of the bytes %j',
    (text) => {
      const bytes = bytesOf(text);
      const whole = converse([bytes]);
      for (const pieces of cutsOf(bytes)) expectEqual(converse(pieces), whole);
    },
  );

  it.each(SMUGGLING.filter(([text]) => text.length < 1000).map(([text]) => text))(
    'the HTTP parser of the service plane reads no request from the invalid bytes %j',
    (text) => {
      expect(converse([bytesOf(`${text}GET /2 HTTP/1.1\r\n${HOST}\r\n`)]).exchanges).toEqual([]);
    },
  );

  it('`differenceFromNode` (compares parsed requests with those of Node) reports a different target, method, header or body', () => {
    const bytes = bytesOf(`POST / HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nhello`);
    const { exchanges } = converse([bytes]);
    const [exchange] = exchanges;
    if (exchange === undefined) throw new Error('nothing was read');
    const changed = (differs: object, body = exchange.body) => ({
      fault: null,
      exchanges: [{ ...exchange, body, head: { ...exchange.head, ...differs } }],
    });
    expect(nodeView(bytes).requests).toHaveLength(1);
    expect(differenceFromNode(bytes, changed({ path: '/x' }))).toBe('request 0: target /x, /');
    expect(differenceFromNode(bytes, changed({ method: 'PUT' }))).toBe('request 0: method POST');
    expect(differenceFromNode(bytes, changed({ headers: [['x', 'y']] }))).toBe('request 0: header x: y');
    expect(differenceFromNode(bytes, changed({}, 'hell'))).toBe('request 0: body "hello", complete: true');
    expect(differenceFromNode(bytes, changed({ framing: 0 }, ''))).toContain('request 0: body');
  });
});
