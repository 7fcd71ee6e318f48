import type { Socket } from 'node:net';
import type { ErrorCode } from '#api/errors/error-table.js';
import { ApiError, PROBLEM_TYPE, problemDocument } from '#api/errors/errors.js';

/** Responds to input that is not HTTP, has too large headers, or arrives too slowly. */
export function answerClientError(error: Error & { readonly code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed) return;
  answerProblem(socket, new ApiError(codeOf(error.code)));
}

/**
 * Writes an error response directly to a socket and closes the connection. Used for input for which Node.js
 * creates no response object: invalid HTTP, or a CONNECT request.
 */
export function answerProblem(socket: Socket, answer: ApiError): void {
  if (socket.writable) {
    const document = problemDocument(answer);
    const body = JSON.stringify(document);
    socket.write(
      [
        `HTTP/1.1 ${document.status} ${document.title}`,
        `Content-Type: ${PROBLEM_TYPE}`,
        ...(answer.code === 'method_not_allowed' ? ['Allow: GET'] : []),
        `Content-Length: ${Buffer.byteLength(body)}`,
        'Cache-Control: no-store',
        'X-Content-Type-Options: nosniff',
        'Connection: close',
        '',
        body,
      ].join('\r\n'),
    );
  }
  socket.destroySoon();
}

function codeOf(code: string | undefined): ErrorCode {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 'request_timeout';
    case 'HPE_HEADER_OVERFLOW':
      return 'headers_too_large';
    default:
      return 'malformed_request';
  }
}
