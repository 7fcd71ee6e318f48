const CONTROL = /[\p{Cc}\u2028\u2029]/u;

/**
 * Makes the control characters in the texts of a JSON line visible, as `\u001b`: a formatter writes the texts
 * to a terminal as they are. Line feeds and tabs of a text stay, because the stack of an error has them.
 */
export function withoutControls(line: string): string {
  const raw = line.replace(/(?!\n)[\p{Cc}\u2028\u2029]/gu, (found) => `\\\\u${hex(found)}`);
  return raw.replace(/\\(?:u([0-9a-f]{4})|.)/gi, (found, code: string | undefined) => {
    const isControl = code === undefined ? /[bfr]/.test(found) : CONTROL.test(String.fromCharCode(parseInt(code, 16)));
    return isControl ? `\\${found}` : found;
  });
}

const hex = (character: string): string => character.charCodeAt(0).toString(16).padStart(4, '0');
