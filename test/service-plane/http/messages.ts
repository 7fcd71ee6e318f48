const HOST = 'Host: a.test\r\n';

/** The client bytes of connections that contain valid requests only. */
export const MESSAGES: readonly string[] = [
  `GET / HTTP/1.1\r\n${HOST}\r\n`,
  `\r\nGET /a?b=c HTTP/1.1\r\n${HOST}X-A: b\r\nx-a:c\r\n\r\n`,
  `GET / HTTP/1.0\r\n${HOST}\r\n`,
  `OPTIONS * HTTP/1.1\r\n${HOST}\r\n`,
  `GET https://a.test/x?y HTTP/1.1\r\n${HOST}\r\n`,
  `POST / HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\n${HOST}\r\n`,
  `POST / HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\na;x=y\r\n0123456789\r\n0\r\n\r\nGET /2 HTTP/1.1\r\n${HOST}\r\n`,
  `PUT /u HTTP/1.1\r\n${HOST}Transfer-Encoding: Chunked\r\nTrailer: X-Sum\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n`,
  `GET / HTTP/1.1\r\n${HOST}Connection: keep-alive, X-A\r\nX-A: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\r\n`,
  `GET / HTTP/1.1\r\n${HOST}Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\x05hello`,
  `GET / HTTP/1.1\r\n${HOST}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n`,
  `POST / HTTP/1.1\r\n${HOST}Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok`,
  `DELETE /x HTTP/1.1\r\n${HOST}Content-Length: 0\r\nConnection: close\r\n\r\n`,
  `GET / HTTP/1.1\r\nHost: [::1]:8443\r\nCookie: a=b; c="d"\r\nX: \xe4\t\xff\r\nEmpty:\r\n\r\n`,
  `GET / HTTP/1.1\r\n${HOST}${Array.from({ length: 80 }, (_, index) => `X-${index}: ${index}\r\n`).join('')}\r\n`,
];
