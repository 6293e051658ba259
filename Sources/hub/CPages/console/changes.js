// @ts-check
// Pages about changes: Stream, Change, Transaction, Row, Why not?
import { clock, commandLine, countOutcomes, headline, isRecorded, keyText, micros, moment, number, outcome, plural, shortName, shorter, summary, tableName, writePlace, topicName } from './words.js'
import { eachFrame, fill, h } from './view.js'
import { at, badge, between, drawingKey, empty, failure, panel, path, recordTable, searched, standsFor, table, tally, time, unknown, unmaskButton, user, valueOf } from './parts.js'
/** @typedef {import('./parts.js').Context} Context */
/** @typedef {import('./parts.js').Column} Column */

/** @type {Column[]} */
const CHANGE_COLUMNS = [
  ['offset', (change) => at(change.offset), 'tight'],
  ['committed (UTC)', (change) => time(change.time), 'tight'],
  ['operation', (change) => change.op, 'tight'],
  ['table', (change) => tableName(change), 'tight'],
  ['key', (change) => (change.key ? standsFor(h('a.mono', { href: rowPlace(change) }, shorter(keyText(change.key)).slice(0, 80)), keyText(change.key)) : '–'), 'tight'],
  ['what changed', (change) => h('span.value', { title: summary(change).slice(0, 2000) }, shorter(summary(change)).slice(0, 300)), '', summary],
]

/** @param {any} change */
export function rowPlace(change) {
  return writePlace('row', [`${change.schema}.${change.table}`, ...Object.values(change.key ?? {}).map(String)])
}

/** @param {any[]} changes */
function changeRows(changes) { return changes.filter((change) => change.offset !== undefined && change.op !== 'HEARTBEAT' && change.op !== 'END') }

// Stream

const LIMIT = 500
const MOST_LIVE = 5000

/** @param {Context} context */
export function streamPage(context) {
  const { source, place, until } = context
  const query = place.query
  const params = { table: query.table, op: query.op, where: query.where, from: query.from, to: query.to, limit: Number(query.limit) || LIMIT }
  context.command(commandLine('tail', query.live ? { follow: true, table: query.table, op: query.op, where: query.where } : params))
  const field = (name, label, hint) => h('label.field', label, h('input', { type: 'text', name, value: query[name] ?? '', placeholder: hint, size: Math.max(10, hint.length), spellcheck: 'false', autocomplete: 'off' }))
  const tables = h('select', { name: 'table' }, h('option', { value: '' }, 'every table'), query.table ? h('option', { value: query.table, selected: true }, query.table) : null)
  context.tables().then((names) => { for (const name of names) if (name !== query.table) tables.append(h('option', { value: name }, name)) }).catch(() => {})
  const form = h('form.row', { onsubmit: (event) => { event.preventDefault(); apply({}) } },
    h('label.field', 'Table', tables),
    h('label.field', 'Operation', h('select', { name: 'op' }, [['', 'every'], ['I', 'INSERT'], ['U', 'UPDATE'], ['D', 'DELETE'], ['M', 'MESSAGE']].map(([value, name]) => h('option', { value, selected: query.op === value }, name)))),
    field('from', 'From', '-1h, @6'), field('to', 'To', 'the end'), field('where', 'Where', 'status=paid'),
    h('button', { type: 'submit' }, 'Show'),
    source.kind === 'hub' ? h('button', { type: 'button', 'aria-pressed': query.live ? 'true' : 'false', onclick: () => apply({ live: query.live ? '' : '1' }) }, query.live ? '● Live' : '○ Live') : null)
  const apply = (more) => context.change({ ...query, ...Object.fromEntries(new FormData(form)), limit: '', ...more })
  form.addEventListener('change', (event) => { if (/** @type {Element} */ (event.target).matches('select')) apply({}) })
  const lead = h('div.lead', h('h1', 'Stream'), h('p.second', 'Every change in the order of commits, the oldest first. Choose one to see who was told of it.'))
  if (query.live) return [lead, form, livePart(context)]
  return [lead, form, panel({
    until, lines: 24, load: (signal) => source.ask('tail', params, signal),
    show: (answer) => {
      const rows = changeRows(answer.records)
      const [first, last] = [rows[0], rows.at(-1)]
      if (rows.length === 0) return [empty('No change in this window', 'The log has no change that fits. A wider window, or another table, may have some.', h('button', { onclick: () => context.change({ from: 'oldest' }) }, 'Search the whole log')), searched(answer, describeWindow(params))]
      const isLimited = rows.length >= params.limit
      return [
        table({ columns: CHANGE_COLUMNS, rows, label: 'Changes', open: (change) => writePlace('change', [change.offset]) }),
        searched(answer, `${describeWindow(params)}; shown are ${isLimited ? (params.from ? 'the first ' : 'the last ') : 'all '}${plural(rows.length, 'change')} that fit, @${first.offset} to @${last.offset}, ${moment(first.time)} to ${moment(last.time)} UTC${isLimited ? '. The limit counts changes after the filter' : ''}`),
        isLimited ? h('div.row', params.from
          ? h('button', { onclick: () => context.change({ ...query, from: `@${last.offset + 1}` }) }, 'Later changes')
          : h('button', { onclick: () => context.change({ ...query, from: `@${Math.max(0, first.offset - LIMIT)}`, to: `@${first.offset}` }) }, 'Earlier changes'),
        h('button', { onclick: () => context.change({ ...query, limit: 5000 }) }, 'Up to 5 000')) : null,
      ]
    },
  })]
}

/** @param {Record<string, any>} params */
function describeWindow(params) {
  const which = [params.table ? `changes of ${params.table}` : 'changes of every table', params.op ? `operation ${params.op}` : '', params.where ? `where ${params.where}` : ''].filter(Boolean).join(', ')
  return `${which}, ${params.from ? `from ${params.from}` : 'the newest'}${params.to ? ` to ${params.to}` : ''}`
}

/**
 * Live changes. One tab of a browser has the stream and passes it on to the others, because a browser allows few
 * connections to a host. A hidden tab that has the stream closes it.
 * @param {Context} context
 */
function livePart({ source, place, until }) {
  const { table: name, op, where } = place.query
  const channel = new BroadcastChannel(`tidewire ${source.project} ${name ?? ''} ${op ?? ''} ${where ?? ''}`)
  until.addEventListener('abort', () => channel.close())
  /** @type {any[]} */
  let rows = []
  let dropped = 0
  let seen = 0
  let isPaused = false
  const state = h('p', { role: 'status', class: 'second' }, 'Connecting …')
  const list = table({ columns: CHANGE_COLUMNS, rows: Array.from({ length: 121 }, () => ({ op: '', offset: '' })), label: 'Live changes', open: (change) => writePlace('change', [change.offset]), tools: ' ' })
  list.update([])
  let [second, rate] = [0, 0]
  const draw = eachFrame(() => {
    fill(state, h('span', { class: isPaused ? 'second' : 'received' }, isPaused ? '❚❚ Paused. ' : '● Live. '), `${plural(seen, 'change')} since this page was opened, ${number(rate)} in the last second.`, dropped ? ` The oldest ${number(dropped)} are no longer shown here.` : '')
    if (isPaused) return
    const view = list.view
    const isAtEnd = view.scrollHeight - view.scrollTop - view.clientHeight < 60
    list.update(rows)
    if (isAtEnd) requestAnimationFrame(() => requestAnimationFrame(() => { view.scrollTop = view.scrollHeight }))
  })
  const ticker = setInterval(() => { rate = second; second = 0; draw() }, 1000)
  until.addEventListener('abort', () => clearInterval(ticker))
  const take = (records) => {
    const end = records.find((record) => record.op === 'END')
    const fresh = changeRows(records)
    seen += fresh.length
    second += fresh.length
    rows = rows.concat(fresh)
    if (rows.length > MOST_LIVE) { dropped += rows.length - MOST_LIVE; rows = rows.slice(-MOST_LIVE) }
    draw()
    if (end) fill(state, h('span.missed', `✕ The stream ended: ${end.reason}.`))
  }
  channel.onmessage = (event) => take(event.data)
  const lead = async () => {
    while (!until.aborted) {
      await new Promise((done) => { if (!document.hidden) done(null); else document.addEventListener('visibilitychange', () => done(null), { once: true, signal: until }) })
      const stop = new AbortController()
      const hide = () => { if (document.hidden) stop.abort() }
      document.addEventListener('visibilitychange', hide)
      const leave = () => stop.abort()
      until.addEventListener('abort', leave)
      try {
        draw()
        await source.follow({ table: name, op, where }, stop.signal, (records) => { take(records); channel.postMessage(records) })
        if (!until.aborted) await new Promise((done) => setTimeout(done, 1000))
      } catch (error) {
        if (until.aborted) return
        if (!stop.signal.aborted) {
          fill(state, failure(error))
          await new Promise((done) => setTimeout(done, 3000))
        }
      } finally {
        document.removeEventListener('visibilitychange', hide)
        until.removeEventListener('abort', leave)
      }
    }
  }
  navigator.locks.request(`tidewire stream ${source.project} ${name ?? ''} ${op ?? ''} ${where ?? ''}`, { signal: until }, lead).catch(() => {})
  const pause = h('button', { 'aria-pressed': 'false', onclick: () => { isPaused = !isPaused; pause.setAttribute('aria-pressed', String(isPaused)); draw() } }, 'Pause')
  return h('section.panel', h('div.row.end', state, pause), list)
}

// Change

/** @param {Context} context */
export function changePage(context) {
  const { source, place, until } = context
  const offset = Number(String(place.args[0] ?? '').replace('@', ''))
  if (!place.args.length || !Number.isSafeInteger(offset)) {
    return [h('div.lead', h('h1', 'Change'), h('p.second', 'One change: what it did, and who was told of it.')), latestPart(context)]
  }
  context.command(commandLine('who', { offset: `@${offset}`, gone: true }))
  const changing = source.ask('event', { offset: `@${offset}` }, until)
  const telling = source.ask('who', { offset: `@${offset}`, gone: true }, until)
  return [
    panel({
      until, lines: 5.5, load: () => changing,
      show: ({ records: [change] }) => change ? [
        h('div.lead', h('p.mono.second', `@${offset}`), h('h1', headline(change)), change.op === 'UPDATE' ? h('p', summary(change).slice(0, 600)) : null,
          change.actor ? h('p', `By ${change.actor.actor ?? JSON.stringify(change.actor)}, as the application recorded it.`) : null),
        h('div.row', h('a.button', { href: writePlace('change', [offset - 1]), rel: 'prev' }, '← Before'), h('a.button', { href: writePlace('change', [offset + 1]), rel: 'next' }, 'After →'),
          change.key ? h('a.button', { href: rowPlace(change) }, 'All versions of the row') : null, h('a.button', { href: writePlace('tx', [change.xid]) }, `Transaction ${change.xid}`),
          h('a.button', { href: writePlace('film', [], { at: offset }) }, 'Film from here')),
      ] : empty('The log has no such change', 'Offsets count entries of all kinds, and retention removes old ones.', h('a.button', { href: '#/stream' }, 'Show the newest changes')),
    }),
    panel({
      title: 'Who was told', until, lines: 18,
      load: async () => { const [told, { records: [change] }] = await Promise.all([telling, changing]); return { told, change } },
      show: ({ told, change }) => change ? [pathOf(change, told.records), recipients(context, change, told)] : empty('Nobody', 'There is no such change.'),
    }),
    panel({ title: 'The row', until, load: () => changing, show: ({ records: [change] }) => change?.record || change?.old_record ? [recordTable(change), unmaskButton(context, change)] : change ? empty('No row', change.op === 'MESSAGE' ? `A message in the WAL: ${change.prefix} ${change.content}` : 'This change has no row.') : null }),
    panel({
      title: 'Other changes of the transaction', until,
      load: async (signal) => { const { records: [change] } = await changing; return change ? source.ask('tx', { xid: String(change.xid) }, signal) : { records: [], took: 0 } },
      show: (answer) => { const rows = changeRows(answer.records); return rows.length > 1 ? table({ columns: CHANGE_COLUMNS, rows, label: 'Changes of the transaction', open: (row) => writePlace('change', [row.offset]), mark: (row) => row.offset === offset }) : h('p.second', 'It is the only change of its transaction.') },
    }),
  ]
}

/** @param {Context} context */
function latestPart({ source, until }) {
  return panel({ title: 'The newest changes', until, lines: 8, load: (signal) => source.ask('tail', { limit: 20 }, signal), show: (answer) => table({ columns: CHANGE_COLUMNS, rows: changeRows(answer.records), label: 'The newest changes', open: (row) => writePlace('change', [row.offset]) }) })
}

/** Way of a change from PostgreSQL to its clients. @param {any} change @param {any[]} clients */
function pathOf(change, clients) {
  const sent = clients.map((client) => client.sent_at).filter(Boolean).sort()
  const counts = countOutcomes(clients)
  const all = (/** @type {string[]} */ names) => names.reduce((sum, name) => sum + (counts[name]?.all ?? 0), 0)
  const [told, received] = [all(['sent', 'received', 'sent_later', 'received_later']), all(['received', 'received_later'])]
  return [path([
    { name: "Committed (PostgreSQL's clock)", text: time(change.time), note: `xid ${change.xid}` },
    { name: 'In the log', text: at(change.offset), note: h('span.mono', change.lsn) },
    sent.length ? { name: "First sent (the hub's clock)", text: time(sent[0]), note: `${between(change.time, sent[0])} after the commit`, tone: 'sent' }
      : told ? { name: 'Sent', text: plural(told, 'client'), note: 'the ledger has no times (ledger = full records them)', tone: 'sent', how: 'derived' }
      : { name: 'Sent', text: 'to nobody', note: 'see below, by name', tone: clients.length ? 'denied' : 'gone', how: clients.length ? '' : 'unknown' },
    sent.length > 1 ? { name: 'Last sent', text: time(sent.at(-1)), note: `${between(change.time, sent.at(-1))} after the commit`, tone: 'sent' } : null,
    { name: 'Acknowledged', text: received ? `${number(received)} of ${plural(told, 'client')}` : told ? 'by none yet, as recorded' : '–', note: 'sockets acknowledge when they answer a ping, or leave', tone: received ? 'received' : 'gone', how: received ? '' : 'unknown' },
  ].filter((step) => step !== null)), sent.some((one) => micros(one) < micros(change.time)) ? h('p.small.missed', "The two clocks disagree: a change was sent before its commit. The times are shown as they were recorded.") : null]
}

/** @param {Context} context @param {any} change @param {import('./source.js').Answer} told */
function recipients(context, change, told) {
  const clients = told.records.filter((client) => client.outcome)
  const others = told.records.filter((record) => !record.outcome)
  if (clients.length === 0) return [unknown('Nobody is known', 'The ledger has no client that had joined before this change. Where the setting ledger was off, or its records were removed, that does not mean that nobody was told.'), searched(told, 'clients of the ledger around this change')]
  const filter = context.place.query.outcome
  const rows = filter ? clients.filter((client) => client.outcome === filter) : clients
  const counts = countOutcomes(clients)
  const hasUnknown = (counts.unknown?.all ?? 0) > 0
  return [
    tally(counts),
    h('div.row', h('span.small.second', 'Show'), h('button', { 'aria-pressed': String(!filter), onclick: () => context.change({ outcome: '' }) }, 'all'),
      Object.keys(counts).map((name) => h('button', { 'aria-pressed': String(filter === name), onclick: () => context.change({ outcome: name }) }, `${outcome(name).glyph} ${outcome(name).word}`))),
    table({
      label: 'Clients', rows, tools: drawingKey(),
      columns: [
        ['outcome', (client) => badge(client.outcome, { isDerived: !isRecorded(client) }), 'tight'],
        ['user', (client) => user(client.user), 'tight'],
        ['session', (client) => client.session ? h('a.mono', { href: writePlace('lanes', [], { session: client.session }) }, `${client.session}/${client.channel}`) : '–', 'tight'],
        ['topic', (client) => topicName(client.topic), 'tight'],
        ['sent (UTC)', (client) => time(client.sent_at), 'tight'],
        ['why', (client) => [client.reason, ' ', change.table && client.user ? h('a', { href: writePlace('why', [change.offset], { user: client.user, role: client.role, session: client.session ? `${client.session}/${client.channel}` : '' }) }, ['not_matched', 'not_sent', 'unknown'].includes(client.outcome) ? 'Why not?' : 'Why?') : null]],
      ],
    }),
    hasUnknown ? unknown('Not everything is known', 'For some clients the ledger has no record of this time. So nobody can say that they were told, nor that they were not.') : null,
    others.map((other) => h('p.second', JSON.stringify(other))),
    searched(told, `all clients that the ledger has around @${change.offset}${clients.length >= 1000 ? ' (the first 1 000 were evaluated)' : ''}; policies ${clients[0].policies === 'now' ? 'are the present ones, because the log lacks those of then' : 'are those of then'}`),
    clients.some((client) => client.claims_not_kept) ? h('p.small.second', `Policies were evaluated without claims that are not kept (setting: ledger_claims): ${[...new Set(clients.map((client) => client.claims_not_kept).filter(Boolean))].join(', ')}.`) : null,
  ]
}

// Transaction

/** @param {Context} context */
export function transactionPage(context) {
  const { source, place, until } = context
  const xid = place.args[0] ?? ''
  context.command(commandLine('tx', { xid }))
  return [panel({
    until, lines: 6, load: (signal) => source.ask('tx', { xid }, signal),
    show: (answer) => {
      const rows = changeRows(answer.records)
      if (!rows.length) return [h('h1', `Transaction ${xid}`), empty('The log has no such transaction', 'Its changes were older than retention, or it changed no table of the publication.')]
      const [first] = rows
      return [h('div.lead', h('h1', `Transaction ${first.xid}`), h('p', `${plural(rows.length, 'change')}, committed `, time(first.time, true), ` UTC by PostgreSQL's clock. Its commit is at `, h('span.mono', first.lsn), '.')),
        table({ columns: CHANGE_COLUMNS, rows, label: 'Changes of the transaction', open: (row) => writePlace('change', [row.offset]) }), searched(answer, 'the whole log')]
    },
  })]
}

// Row

/** @param {Context} context */
export function rowPage(context) {
  const { source, place, until } = context
  const [name, ...key] = place.args
  if (!name || key.length === 0) return [h('div.lead', h('h1', 'Row'), h('p.second', 'Every version of one row, and how many clients were told of each. Write the table and the key, such as “notes 1”.')), rowForm(context, name), latestPart(context)]
  context.command(commandLine('row', { table: name, key }))
  return [
    h('div.lead', h('h1', `Row ${key.join(', ')} of ${name.replace(/^public\./, '')}`)),
    panel({
      until, lines: 6,
      load: async (signal) => {
        const answer = await source.ask('row', { table: name, key }, signal)
        const rows = changeRows(answer.records)
        return { answer, rows }
      },
      show: ({ answer, rows }) => {
        if (!rows.length) return [empty('The log has no change of this row', 'A row that did not change within retention is not in the log. The key must have every column of the primary key.'), rowForm(context, name)]
        const chosen = signalOfRow(place.query.at, rows)
        const counts = h('div')
        const view = h('div')
        const slider = h('input', { type: 'range', min: 0, max: rows.length - 1, value: chosen, 'aria-label': 'Version of the row', oninput: () => draw(Number(slider.value)), onchange: () => context.change({ at: rows[Number(slider.value)].offset }) })
        const draw = (index) => {
          const row = rows[index]
          fill(view, h('p', `As of `, time(row.time, true), ` UTC, version ${index + 1} of ${rows.length}: `, row.op === 'DELETE' ? h('strong.missed', 'the row was removed') : row.op.toLowerCase(), ' ', at(row.offset)), recordTable(row))
        }
        draw(chosen)
        tellCounts(source, rows, until).then((told) => fill(counts, versionsTable(rows, told)), (error) => fill(counts, versionsTable(rows, []), failure(error)))
        fill(counts, versionsTable(rows, null))
        return [h('div.card', h('label.small.second', 'The row as of'), slider, view), unmaskButton(context, rows.at(-1)), h('h2', 'Versions'), counts, searched(answer, `the whole log; ${plural(rows.length, 'version')}`)]
      },
    }),
  ]
}

/** @param {string | undefined} offset @param {any[]} rows */
function signalOfRow(offset, rows) {
  const index = rows.findIndex((row) => String(row.offset) === offset)
  return index < 0 ? rows.length - 1 : index
}

/** @param {any} source @param {any[]} rows @param {AbortSignal} until */
async function tellCounts(source, rows, until) {
  const newest = rows.slice(-40)
  const answers = await source.askAll(newest.map((row) => ['event', { offset: `@${row.offset}` }]), until)
  return [...rows.slice(0, -40).map(() => null), ...answers.map((answer) => answer.records?.[0]?.clients ?? null)]
}

/** @param {any[]} rows @param {any[] | null} told counts of clients; null while they load */
function versionsTable(rows, told) {
  const lines = rows.map((row, index) => ({ row, counts: told?.[index] ?? null }))
  const words = (counts) => Object.entries(counts).filter(([, count]) => count).map(([name, count]) => `${count} ${outcome(name).word}`).join(', ') || 'nobody'
  return table({
    label: 'Versions of the row', rows: lines, open: ({ row }) => writePlace('change', [row.offset]),
    columns: [
      ['offset', ({ row }) => at(row.offset), 'tight'],
      ['committed (UTC)', ({ row }) => time(row.time, true), 'tight'],
      ['operation', ({ row }) => row.op, 'tight'],
      ['what changed', ({ row }) => row.diff && Object.keys(row.diff).length ? Object.entries(row.diff).map(([column, { old, new: next }]) => h('div', h('span.mono', column), h('del', valueOf(old)), h('ins', valueOf(next)))) : h('span.value', shorter(summary(row)).slice(0, 400)), '', ({ row }) => summary(row)],
      ['clients, as recorded', ({ counts }) => told === null ? h('span.second', '…') : counts ? words(counts) : h('span.unknown', '? not asked')],
    ],
  })
}

/** @param {Context} context @param {string} [name] */
function rowForm(context, name = '') {
  const list = h('datalist', { id: 'tables' })
  context.tables().then((names) => fill(list, names.map((one) => h('option', { value: one })))).catch(() => {})
  const form = h('form.row', { onsubmit: (event) => { event.preventDefault(); const data = Object.fromEntries(new FormData(form)); location.hash = writePlace('row', [String(data.table), ...String(data.key).split(/[\s,]+/)]) } },
    h('label.field', 'Table', h('input', { type: 'text', name: 'table', value: name, list: 'tables', required: true })), h('label.field', 'Key', h('input', { type: 'text', name: 'key', required: true, placeholder: '1' })), h('button', { type: 'submit' }, 'Show'), list)
  return form
}

// Why not?

/** @param {Context} context */
export function whyPage(context) {
  const { source, place, until } = context
  const offset = (place.args[0] ?? '').replace('@', '')
  const { user: sub = '', role = 'authenticated', session } = place.query
  const form = h('form.row', { onsubmit: (event) => {
    event.preventDefault()
    const data = Object.fromEntries(new FormData(form))
    location.hash = writePlace('why', [String(data.offset).replace('@', '')], { user: data.user, role: data.role })
  } },
  h('label.field', 'Change', h('input', { type: 'text', name: 'offset', value: offset ? `@${offset}` : '', placeholder: '@6', required: true, size: 8 })),
  h('label.field', 'User', h('input', { type: 'text', name: 'user', value: sub, placeholder: 'the claim sub', size: 38 })),
  h('label.field', 'Role', h('input', { type: 'text', name: 'role', value: role, size: 14 })), h('button', { type: 'submit', class: 'first' }, 'Why?'))
  const lead = h('div.lead', h('h1', 'Why not?'), h('p.second', 'Each check that stands between a commit and a client, as of that time.'))
  if (!offset) return [lead, form, latestPart(context)]
  const choice = panel({
    title: sub ? undefined : 'Whom do you mean?', until, load: (signal) => source.ask('who', { offset: `@${offset}`, gone: true }, signal),
    show: (answer) => {
      const users = [...new Map(answer.records.filter((client) => client.user).map((client) => [client.user, client])).values()]
      if (!users.length) return unknown('Nobody is known', 'The ledger has no user around this change. Write the user yourself.')
      return h('div.row', h('span.small.second', 'Users around this change:'), users.map((client) => h('a.button', { 'aria-current': client.user === sub ? 'true' : null, href: writePlace('why', [offset], { user: client.user, role: client.role }) }, outcome(client.outcome).glyph, ' ', shortName(client.user))))
    },
  })
  if (!sub) return [lead, form, choice]
  return [lead, form, choice, panel({
    until, lines: 6,
    load: async (signal) => {
      const { records: [change] } = await source.ask('event', { offset: `@${offset}` }, signal)
      // The ledger has the claims and the filter of a client: a report answers by users.
      const who = session && source.kind !== 'file' ? { session } : { role, sub }
      const params = { table: `${change?.schema}.${change?.table}`, ...who, offset: `@${offset}` }
      context.command(commandLine('why', params))
      if (!change?.table) return { change }
      return { change, why: (await source.ask('why', params, signal)).records[0] }
    },
    show: ({ change, why }) => !change ? empty('The log has no such change', 'Retention removes old ones.') : !why ? empty('This is not a change of a table', headline(change)) : whyReport(change, why, shortName(sub), session),
  })]
}

/** @param {any} change @param {any} why @param {string} name @param {string} [session] */
function whyReport(change, why, name, session) {
  const image = why.image ?? {}
  const yes = (value) => (value === true ? ['✓', 'received'] : value === false ? ['✕', 'missed'] : ['?', 'unknown'])
  const step = (value, title, ...text) => { const [glyph, tone] = yes(value); return h('li', h('span', { class: `glyph ${tone}`, 'aria-label': value === true ? 'holds' : value === false ? 'does not hold' : 'unknown' }, glyph), h('div', h('h3', title), text)) }
  const policies = (image.policies ?? []).map((policy) => h('div', h('p', `Policy “${policy.name}” (${policy.permissive ? 'permissive' : 'restrictive'})`), h('pre', policy.using), tree(policy.parts ?? [])))
  const isSent = (why.recorded ?? []).filter((one) => one.sent_at)
  const verdict = why.told === true ? ['received', '✓'] : why.told === false ? ['missed', '✕'] : ['unknown', '?']
  const isVisible = image.visible
  return [
    h('div.card', h('h2', { class: verdict[0] }, `${verdict[1]} ${why.told ? `${name} may see it, and was told where it listened` : why.told === false ? `${name} was not told of it` : 'It is unknown'}`), h('p', why.sentence), session ? h('p.second', `Judged by the claims and the filter of session ${session}, as the ledger recorded them.`) : null, h('p.second', headline(change), ' ', at(change.offset), ', committed ', time(change.time, true), ' UTC')),
    h('ol', { class: 'steps' },
      step(why.publication?.has_table && why.publication?.has_operation, 'The publication has the table', h('p.second', `${why.publication?.name} ${why.publication?.has_table ? 'has' : 'lacks'} ${tableName(change)}${why.publication?.has_table && !why.publication?.has_operation ? `, but not the operation ${change.op}` : ''}`)),
      step(why.role?.exists && why.role?.has_usage && why.binding?.access === 'readable', `The role ${why.role?.name} may read it`, h('p.second', why.role?.selectable?.length ? `it may SELECT ${why.role.selectable.join(', ')}${why.role.hidden?.length ? `; hidden are ${why.role.hidden.join(', ')}` : ''}` : 'it may SELECT no column')),
      step(image.passes_filter ?? why.wants_operation, 'The filter of the channel fits', h('p.second', image.filter?.length ? tree(image.filter) : session ? 'the channel has no filter' : 'no filter was given to this question')),
      step(why.role?.row_security ? isVisible : true, why.role?.row_security ? 'The policies show the row' : 'Row level security is not active for the role', policies,
        image.memberships?.length ? h('p.second', image.memberships.map((one) => `${one.table}: the user has ${plural(one.keys, 'membership')}, ${one.holds_key ? 'this one among them' : 'and not this one'}${one.trouble ? ` (${one.trouble})` : ''}`).join('; ')) : null,
        image.missing?.length ? h('p.unknown', `? The change lacks columns that policies read: ${image.missing.join(', ')} (REPLICA IDENTITY FULL)`) : null),
      h('li', h('span', { class: `glyph ${isSent.length ? 'sent' : 'gone'}` }, isSent.length ? '○' : why.recorded ? '–' : '?'), h('div', h('h3', 'What the ledger says'),
        why.recorded ? h('p.second', isSent.length ? `The hub sent it to ${isSent.map((one) => `${one.session} at ${clock(one.sent_at)}`).join(', ')}.` : `The hub did not send it to any of the user's ${plural(why.recorded.length, 'channel')}.`) : h('p.second', 'Deliveries are not recorded one by one (ledger = full would do that). The answer above is derived.')))),
    why.differences || image.combined?.differs ? h('p.small.second', 'PostgreSQL answers by its present data, so it can differ from the verdict of that time: “hub” is the verdict.') : null,
    (why.notes ?? []).map((note) => h('p.small.second', note)),
  ]
}

/** Conditions of a policy, with their values. @param {any[]} parts */
function tree(parts) {
  const root = h('ul')
  const lists = [root]
  for (const part of parts) {
    const tone = part.hub === 'true' ? 'received' : part.hub === 'false' ? 'missed' : ''
    const item = h('li', h('span.mono', part.text), ' = ', h('strong', { class: `mono ${tone}` }, part.hub ?? part.postgres ?? 'unknown'), part.differs ? h('span.small.second', ` (PostgreSQL now: ${part.postgres})`) : null)
    lists.length = Math.min(lists.length, part.depth + 1)
    const parent = lists.at(-1)
    parent?.append(item)
    const inner = h('ul')
    item.append(inner)
    lists.push(inner)
  }
  for (const list of root.querySelectorAll('ul:empty')) list.remove()
  return h('div.tree', root)
}
