const CONTROL = /[\p{Cc}\u2028\u2029]/u;

/**
 * Replaces the control characters in the texts of a JSON line by visible escapes such as `\u001b`, because a
 * formatter writes the texts unchanged to a terminal. Keeps line feeds and tabs, which are in the stack of an
 * error.
 */
export function withoutControls(line: string): string {
  const raw = line.replace(/(?!\n)[\p{Cc}\u2028\u2029]/gu, (found) => `\\\\u${hex(found)}`);
  return raw.replace(/\\(?:u([0-9a-f]{4})|.)/gi, (found, code: string | undefined) => {
    const isControl = code === undefined ? /[bfr]/.test(found) : CONTROL.test(String.fromCharCode(parseInt(code, 16)));
    return isControl ? `\\${found}` : found;
  });
}

const hex = (character: string): string => character.charCodeAt(0).toString(16).padStart(4, '0');
