// @ts-check
// Words and arithmetic of the console, without the page: outcomes, times, what the search box means, and what a client believes.

/**
 * Outcomes of a change for a client: glyph, word, class of the colour, and one sentence.
 * @type {Record<string, {glyph: string, word: string, tone: string, text: string}>}
 */
export const OUTCOMES = {
  received: { glyph: '●', word: 'received', tone: 'received', text: 'the client has acknowledged it' },
  sent: { glyph: '○', word: 'sent', tone: 'sent', text: 'the hub sent it; the client has not acknowledged it' },
  received_later: { glyph: '◆', word: 'received later', tone: 'later', text: 'the client had it after it came back' },
  sent_later: { glyph: '◇', word: 'sent later', tone: 'later', text: 'the hub sent it after the client came back' },
  not_matched: { glyph: '–', word: 'not for it', tone: 'denied', text: 'a filter or a policy hid it' },
  not_sent: { glyph: '✕', word: 'not sent', tone: 'missed', text: 'the ledger shows that the hub did not send it' },
  refused: { glyph: '⊘', word: 'refused', tone: 'missed', text: 'the hub had refused the client' },
  ended_before: { glyph: '⌁', word: 'gone before', tone: 'gone', text: 'the client had disconnected, or left' },
  unknown: { glyph: '?', word: 'unknown', tone: 'unknown', text: 'the ledger does not show it' },
}
export const ORDER = Object.keys(OUTCOMES)

/** @param {string} name */
export function outcome(name) {
  return OUTCOMES[name] ?? { ...OUTCOMES.unknown, word: name.replaceAll('_', ' ') }
}

/**
 * Counts of recipients, by outcome, with those that were derived.
 * @param {any[]} clients @returns {Record<string, {all: number, derived: number}>}
 */
export function countOutcomes(clients) {
  /** @type {Record<string, {all: number, derived: number}>} */
  const counts = {}
  for (const client of clients) {
    const count = (counts[client.outcome] ??= { all: 0, derived: 0 })
    count.all += client.clients ?? 1
    if (!isRecorded(client)) count.derived += client.clients ?? 1
  }
  return counts
}

/** True if the ledger itself says this, so that nothing was evaluated again. @param {any} client */
export function isRecorded(client) {
  return client.basis === 'recorded' || (client.basis == null && client.policies == null)
}

// Times: always UTC, never adjusted.

/** @param {string | null | undefined} iso */
export function clock(iso) {
  return iso ? iso.slice(11, 23) : '–'
}

/** @param {string | null | undefined} iso */
export function moment(iso) {
  return iso ? `${iso.slice(0, 10)} ${iso.slice(11, 23)}` : '–'
}

/** Microseconds since 1970. @param {string} iso */
export function micros(iso) {
  const fraction = (iso.match(/\.(\d+)/)?.[1] ?? '').padEnd(6, '0').slice(0, 6)
  return Date.parse(iso.replace(/\.\d+/, '').replace(/Z?$/, 'Z')) * 1000 + Number(fraction)
}

/** @param {number} time */
export function isoOf(time) {
  const seconds = Math.floor(time / 1e6)
  return new Date(seconds * 1000).toISOString().slice(0, 19) + '.' + String(Math.floor(time - seconds * 1e6)).padStart(6, '0') + 'Z'
}

/** Length of a time in words. @param {number} us microseconds */
export function length(us) {
  const sign = us < 0 ? '−' : ''
  const size = Math.abs(us)
  if (size < 1000) return `${sign}${Math.round(size)} µs`
  if (size < 1e6) return `${sign}${size < 1e4 ? (size / 1000).toFixed(1) : Math.round(size / 1000)} ms`
  if (size < 6e7) return `${sign}${(size / 1e6).toFixed(size < 1e7 ? 1 : 0)} s`
  if (size < 3.6e9) return `${sign}${Math.floor(size / 6e7)} min ${Math.round((size % 6e7) / 1e6)} s`
  if (size < 8.64e10) return `${sign}${Math.floor(size / 3.6e9)} h ${Math.round((size % 3.6e9) / 6e7)} min`
  return `${sign}${(size / 8.64e10).toFixed(1)} days`
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  let index = 0
  while (bytes >= 1000 && index < 4) [bytes, index] = [bytes / 1000, index + 1]
  return `${index === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[index]}`
}

/** @param {number} value */
export function number(value) {
  return value.toLocaleString('en').replaceAll(',', ' ')
}

/** @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = one + 's') {
  return `${number(count)} ${count === 1 ? one : many}`
}

/** @param {any} value */
export function shown(value) {
  if (value === null || value === undefined) return 'NULL'
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** A mask stands for a value that this reader may not see. @param {any} value */
export function isMask(value) {
  return typeof value === 'string' && /^\*\*\*( [0-9a-f]{8})?$/.test(value)
}

/** @param {any} key the key of a change, an object of columns */
export function keyText(key) {
  return key ? Object.values(key).map(shown).join(',') : '–'
}

/** @param {{schema?: string | null, table?: string | null}} change */
export function tableName(change) {
  return change.table ? (change.schema && change.schema !== 'public' ? `${change.schema}.${change.table}` : change.table) : '–'
}

/** Name of a topic, without the prefix that all have. @param {string | undefined} topic */
export function topicName(topic) {
  return (topic ?? '').replace(/^realtime:/, '')
}

/** Table of a binding. @param {any} binding */
export function boundTable(binding) {
  return `${binding.schema ?? 'public'}.${binding.table ?? '*'}`
}

/** @param {string} text */
export function shortName(text) {
  return /^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(text) ? `${text.slice(0, 8)}…${text.slice(-4)}` : text || 'no user'
}

/** A text with its UUIDs shortened. @param {string} text */
export function shorter(text) {
  return text.replaceAll(/\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{8}([0-9a-f]{4})\b/g, '$1…$2')
}

/** What changed, in one line. @param {any} change */
export function summary(change) {
  if (change.op === 'MESSAGE') return `${change.prefix}: ${change.content}`
  if (change.op === 'UPDATE') {
    const columns = change.changed ?? []
    return columns.map((column) => change.old_record && column in change.old_record
      ? `${column}: ${shown(change.old_record[column])} → ${shown(change.record?.[column])}`
      : `${column}: ${shown(change.record?.[column])}`).join(', ') || 'no column changed'
  }
  const row = change.record ?? change.old_record
  return row ? Object.entries(row).filter(([name]) => !(name in (change.key ?? {}))).map(([name, value]) => `${name}: ${shown(value)}`).join(', ') : ''
}

const VERBS = { INSERT: 'inserted', UPDATE: 'updated', DELETE: 'deleted', TRUNCATE: 'emptied', READ: 'read' }

/** @param {any} change */
export function headline(change) {
  if (change.op === 'MESSAGE') return change.prefix === 'rt:ddl' ? `The schema changed: ${change.content}` : `A message was written: ${change.prefix}`
  if (change.op === 'TRUNCATE') return `${tableName(change)} was emptied`
  const verb = VERBS[/** @type {keyof typeof VERBS} */ (change.op)] ?? change.op.toLowerCase()
  return `Row ${keyText(change.key)} of ${tableName(change)} was ${verb}`
}

// The search box

/**
 * What a text in the search box can mean, the likeliest first.
 * @param {string} text @param {string[]} tables names as `schema.table`
 * @returns {{go: string, words: string, kind: string}[]}
 */
export function meanings(text, tables = []) {
  const given = text.trim()
  /** @type {{go: string, words: string, kind: string}[]} */
  const found = []
  const add = (go, words, kind) => found.push({ go, words, kind })
  /** @type {RegExpMatchArray | null} */
  let match
  if (!given) return found
  if ((match = given.match(/^@?(\d{1,19})$/))) add(`change/${match[1]}`, `Change @${match[1]}`, 'change')
  if ((match = given.match(/^(?:xid|tx)[: ]?(\d+)$/i))) add(`tx/${match[1]}`, `Transaction ${match[1]}`, 'transaction')
  if (/^[0-9a-f]{1,8}\/[0-9a-f]{1,8}$/i.test(given)) add(`tx/${encodeURIComponent(given)}`, `Transaction with LSN ${given}`, 'transaction')
  if ((match = given.match(/^-(\d+)\s*(s|m|min|h|d)$/))) {
    const window = `-${match[1]}${match[2] === 'min' ? 'm' : match[2]}`
    add(`stream?from=${window}`, `Changes of the last ${match[1]} ${{ s: 'seconds', m: 'minutes', min: 'minutes', h: 'hours', d: 'days' }[match[2]]}`, 'window')
    add(`lanes?from=${window}`, 'Sessions of that time', 'lanes')
  }
  if (/^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?)?$/.test(given)) {
    add(`stream?from=${encodeURIComponent(given.replace(' ', 'T'))}`, `Changes since ${given} UTC`, 'window')
  }
  if ((match = given.match(/^@(\d+)\s*(?:\.\.|…|-|to)\s*@?(\d+)$/))) add(`stream?from=@${match[1]}&to=@${match[2]}`, `Changes @${match[1]} to @${match[2]}`, 'window')
  if (/^[0-9a-f]{16}(\/\d+)?$/i.test(given)) add(`lanes?session=${given.split('/')[0]}`, `Session ${given}`, 'session')
  if (/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(given)) add(`lanes?user=${given}`, `User ${given}`, 'user')
  if ((match = given.match(/^@(\d+)\s+(\S{3,})$/))) add(`why/${match[1]}?user=${encodeURIComponent(match[2])}`, `Why was ${shortName(match[2])} told of @${match[1]}, or not?`, 'why')
  if ((match = given.match(/^([A-Za-z_][\w.]*)(?:\s+(\S.*))?$/))) {
    const [, name, key] = match
    const fitting = tables.filter((table) => table === name || table.split('.')[1] === name || (!key && table.includes(name)))
    for (const table of fitting.slice(0, 4)) {
      if (key) add(`row/${encodeURIComponent(table)}/${key.split(/[\s,]+/).map(encodeURIComponent).join('/')}`, `Row ${key} of ${table}`, 'row')
      else add(`stream?table=${encodeURIComponent(table)}`, `Changes of ${table}`, 'table')
    }
    if (key && fitting.length === 0) add(`row/${encodeURIComponent(name)}/${key.split(/[\s,]+/).map(encodeURIComponent).join('/')}`, `Row ${key} of ${name}`, 'row')
  }
  if (found.length === 0 && !/\s/.test(given)) add(`lanes?user=${encodeURIComponent(given)}`, `User ${given}`, 'user')
  return found
}

// The address

/**
 * Parts of the page's address.
 * @typedef {{page: string, args: string[], query: Record<string, string>}} Place
 * @param {string} hash @returns {Place}
 */
export function readPlace(hash) {
  const [path, query = ''] = hash.replace(/^#?\/?/, '').split('?')
  const parts = path.split('/').map((part) => {
    try { return decodeURIComponent(part) } catch { return part }
  })
  return { page: parts[0] || 'now', args: parts.slice(1).filter(Boolean), query: Object.fromEntries(new URLSearchParams(query)) }
}

/** @param {string} page @param {(string | number)[]} args @param {Record<string, any>} query */
export function writePlace(page, args = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== '' && value != null && value !== false)
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return `#/${[page, ...args.map((arg) => encodeURIComponent(arg))].join('/')}${search ? '?' + search : ''}`
}

/** The equal line of the command. @param {string} command @param {Record<string, any>} params */
export function commandLine(command, params) {
  const quoted = (text) => (/^[\w@.,:/+-]+$/.test(String(text)) ? String(text) : `'${String(text).replaceAll("'", `'\\''`)}'`)
  const operands = ['xid', 'offset', 'session', 'table', 'key']
  const own = { row: ['table', 'key'], tx: ['xid'], asof: ['table'], event: ['offset'], who: ['offset'], user: ['sub'], session: ['session'] }[command] ?? []
  const words = ['tidewire', ...(['info', 'verify', 'audit'].includes(command) ? ['log', command] : [command])]
  for (const name of own.length ? own : operands.filter(() => false)) for (const value of [params[name] ?? []].flat()) words.push(quoted(value))
  for (const [name, value] of Object.entries(params)) {
    if (own.includes(name) || name === 'json' || name === 'parts' || value === '' || value == null || value === false) continue
    for (const one of [value].flat()) words.push(one === true ? `--${name}` : `--${name} ${quoted(one)}`)
  }
  return words.join(' ')
}

// Copies of a table

/** @param {string[]} names @param {any[][]} rows @param {string} form */
export function copied(names, rows, form) {
  const cells = rows.map((row) => row.map((cell) => (cell == null ? '' : typeof cell === 'object' ? JSON.stringify(cell) : String(cell))))
  if (form === 'json') return rows.map((row) => JSON.stringify(Object.fromEntries(row.map((cell, index) => [names[index], cell ?? null])))).join('\n') + '\n'
  if (form === 'csv') {
    // A cell that a spreadsheet would compute gets a quote in front of it.
    const plain = (text) => (/^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text)
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)
    return [names, ...cells].map((row) => row.map((text) => quoted(plain(text))).join(',')).join('\r\n') + '\r\n'
  }
  if (form === 'md') {
    const plain = (text) => text.replaceAll('|', '\\|').replaceAll(/[\r\n]+/g, ' ').replaceAll('<', '&lt;')
    return [names, names.map(() => '---'), ...cells].map((row) => `| ${row.map(plain).join(' | ')} |`).join('\n') + '\n'
  }
  const widths = names.map((name, index) => Math.max(name.length, ...cells.map((row) => row[index].length)))
  return [names, ...cells].map((row) => row.map((text, index) => text.padEnd(widths[index])).join('  ').trimEnd()).join('\n') + '\n'
}

// What a client believes

/** @param {any} change */
export function rowName(change) {
  return `${change.schema}.${change.table} ${keyText(change.key)}`
}

/**
 * Rows as they are after changes, in order. The log has changes only, so a row without a change is missing.
 * @param {any[]} changes @returns {Map<string, {record: any, offset: number, change: any}>}
 */
export function rowsAfter(changes) {
  const rows = new Map()
  for (const change of changes) {
    if (change.op === 'TRUNCATE') {
      for (const name of [...rows.keys()]) if (name.startsWith(`${change.schema}.${change.table} `)) rows.delete(name)
    } else if (change.op === 'DELETE') rows.delete(rowName(change))
    else if (change.record) rows.set(rowName(change), { record: change.record, offset: change.offset, change })
  }
  return rows
}

/**
 * The table beside what a client believes, row by row.
 * @param {Map<string, any>} truth @param {Map<string, any>} belief
 * @returns {{name: string, verdict: string, truth: any, belief: any}[]}
 */
export function compared(truth, belief) {
  const rows = []
  for (const [name, row] of truth) {
    const seen = belief.get(name)
    rows.push({ name, verdict: !seen ? 'missing' : seen.offset === row.offset ? 'equal' : 'stale', truth: row, belief: seen ?? null })
  }
  for (const [name, row] of belief) if (!truth.has(name)) rows.push({ name, verdict: 'left over', truth: null, belief: row })
  return rows
}

/**
 * Channels of clients, from the events of the ledger: one lane for each.
 * @param {any[]} events
 */
export function lanesOf(events) {
  /** @type {Map<string, any>} */
  const lanes = new Map()
  const restarts = []
  for (const event of events) {
    if (event.event === 'began' || event.event === 'ended') { restarts.push(event); continue }
    const name = `${event.session}/${event.channel}`
    let lane = lanes.get(name)
    if (!lane) lanes.set(name, (lane = { name, session: event.session, channel: event.channel, user: event.user ?? '', topic: '', bars: [], sent: [], notes: [], bindings: [], resumed: '' }))
    const time = micros(event.time)
    if (event.user) lane.user = event.user
    if (event.topic) lane.topic = event.topic
    if (event.event === 'joined') {
      lane.bars.push({ from: time, to: null, tail: false, end: '', offset: event.offset })
      lane.bindings = event.bindings ?? []
      lane.role = event.role
      if (event.reason) lane.resumed = event.reason
    } else if (event.event === 'sent') lane.sent.push({ time, offset: event.offset })
    else if (event.event === 'left') {
      const bar = lane.bars.at(-1)
      if (bar && bar.to === null) [bar.to, bar.end] = [time, event.reason]
      // The window begins after the join: only the end of the lane is known.
      else lane.bars.push({ from: null, to: time, tail: true, end: event.reason, offset: event.offset })
    } else lane.notes.push({ time, text: [event.event, event.reason].filter(Boolean).join(': ') })
  }
  return { lanes: [...lanes.values()], restarts }
}
