import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export type ServerCertificate = { readonly ca: string; readonly cert: string; readonly key: string };

/**
 * Makes a CA, and a certificate of it for 127.0.0.1 and localhost, in a folder: `ca.pem`, `server.pem` and
 * `server.key`.
 */
export function makeCertificate(folder: string): ServerCertificate {
  const newKey = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes';
  const openssl = (words: string) => execFileSync('openssl', words.split(' '), { cwd: folder, stdio: 'pipe' });
  writeFileSync(join(folder, 'server.ext'), 'subjectAltName=DNS:localhost,IP:127.0.0.1\n');
  openssl(`req -x509 ${newKey} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca`);
  openssl(`req ${newKey} -keyout server.key -out server.csr -subj /CN=kube-apiserver`);
  openssl(
    'x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.pem',
  );
  const read = (file: string) => readFileSync(join(folder, file), 'utf8');
  return { ca: read('ca.pem'), cert: read('server.pem'), key: read('server.key') };
}
