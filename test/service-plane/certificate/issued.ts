import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export type Issued = { readonly der: Uint8Array; readonly pem: string; readonly key: string };

export type Order = {
  /** The subject for openssl, for example `/CN=a`. */
  readonly subject: string;
  readonly by?: Issued;
  /** The extensions of the certificate: lines for openssl.cnf, for example `basicConstraints=CA:TRUE`. */
  readonly extensions?: readonly string[];
  /** The text of further sections in openssl.cnf, to which `extensions` may refer. */
  readonly sections?: string;
  /** The type of the new key: the arguments after `openssl req -newkey`. */
  readonly key?: readonly string[];
  readonly digest?: string;
  /** A certificate whose key the new certificate also uses. Without this option, a new key is created. */
  readonly withKeyOf?: Issued;
  readonly more?: readonly string[];
};

const EC = ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'] as const;
export const AUTHORITY = ['basicConstraints=critical,CA:TRUE', 'keyUsage=critical,keyCertSign,cRLSign'] as const;

/**
 * Creates certificates with the openssl command in a temporary folder. The certificates are valid for 30 days
 * from now.
 */
export class Issuer {
  readonly #folder = mkdtempSync(join(tmpdir(), 'weir-certificates-'));
  #count = 0;

  issue(order: Order): Issued {
    const { subject, by, extensions = [], sections = '', key = EC, digest = 'sha256', withKeyOf, more = [] } = order;
    const file = (name: string): string => join(this.#folder, `${this.#count}.${name}`);
    this.#count++;
    const written = (name: string, text: string): string => {
      writeFileSync(file(name), text);
      return file(name);
    };
    const config = `[req]\ndistinguished_name=dn\n[dn]\n[ext]\n${extensions.join('\n')}\n${sections}\n`;
    const keys =
      withKeyOf === undefined
        ? ['-newkey', ...key, '-noenc', '-keyout', file('key')]
        : ['-key', written('key', withKeyOf.key)];
    const signers = by === undefined ? [] : ['-CA', written('ca', by.pem), '-CAkey', written('cakey', by.key)];
    this.openssl(
      ...['req', '-x509', '-new', ...keys, '-out', file('pem'), '-subj', subject, '-days', '30', `-${digest}`, '-utf8'],
      ...['-config', written('cnf', config), '-extensions', 'ext', ...signers, ...more],
    );
    const pem = readFileSync(file('pem'), 'latin1');
    return { pem, key: readFileSync(file('key'), 'latin1'), der: new X509Certificate(pem).raw };
  }

  openssl(...args: readonly string[]): string {
    return execFileSync('openssl', args, { cwd: this.#folder, encoding: 'utf8', stdio: 'pipe' });
  }

  /** Returns the subject of a certificate in the text form of OpenSSL (RFC 2253). */
  subjectOf({ pem }: Issued): string {
    const file = join(this.#folder, 'subject.pem');
    writeFileSync(file, pem);
    const line = this.openssl('x509', '-in', file, '-noout', '-subject', '-nameopt', 'RFC2253,-esc_msb');
    return line.slice('subject='.length, -1);
  }

  /** Returns true if OpenSSL trusts a certificate chain for a TLS server. */
  verifies(anchors: readonly Issued[], [leaf, ...others]: readonly Issued[]): boolean {
    const file = (name: string, certificates: readonly (Issued | undefined)[]): string => {
      writeFileSync(join(this.#folder, name), certificates.map((one) => one?.pem).join(''));
      return join(this.#folder, name);
    };
    const trusted = ['-CAfile', file('anchors.pem', anchors), '-no-CApath', '-no-CAstore', '-partial_chain'];
    const sent = others.length === 0 ? [] : ['-untrusted', file('others.pem', others)];
    const flags = ['-purpose', 'sslserver', '-auth_level', '2'];
    try {
      this.openssl('verify', ...trusted, ...sent, ...flags, file('leaf.pem', [leaf]));
      return true;
    } catch {
      return false;
    }
  }

  close(): void {
    rmSync(this.#folder, { recursive: true });
  }
}
