import { z } from 'zod';

/** A time in UTC as users write it: a date, a time of day and `Z`. */
export const instantSchema = z.iso.datetime({ error: 'Must be a time in UTC such as 2026-01-31T12:00:00Z.' });
