// @ts-check
// Pages about the hub: Now, Channels, Rules, House.
import { commandLine, length, moment, number, plural, size, writePlace, topicName } from './words.js'
import { fill, h, toast, toClipboard } from './view.js'
import { at, empty, failure, panel, searched, spark, table, textDifference, time, unknown, user } from './parts.js'
import { AskError } from './source.js'
/** @typedef {import('./parts.js').Context} Context */
/** @typedef {import('./parts.js').Column} Column */

// Now

/** @param {Context} context */
export function nowPage(context) {
  const { source, until } = context
  context.command(source.kind === 'hub' ? commandLine('doctor', {}) : commandLine('stats', {}))
  if (source.kind === 'file') return [h('div.lead', h('h1', source.data.title), h('p.second', source.data.made)), reportLead(context)]
  if (source.kind === 'bundle') {
    return [h('div.lead', h('h1', source.project), h('p.second', 'A bundle: a window of a log, with its ledger. Nothing here asks a hub or a database.')), panel({
      until, lines: 4, load: async (signal) => ({ data: { changes: (await source.ask('tail', { from: 'oldest', limit: 5000 }, signal)).records, ledger: (await source.ask('session', { from: 'oldest' }, signal)).records } }),
      show: (found) => reportLead({ source: found }),
    })]
  }
  const sentences = panel({
    until, lines: 19,
    load: async (signal) => {
      const or = (/** @type {Promise<any>} */ promise) => promise.catch((error) => { if (error instanceof AskError && (error.kind === 'role' || error.kind === 'nothing' || error.kind === 'question')) return null; throw error })
      const [health, values, info, channels] = await Promise.all([or(source.get('health', signal)), or(source.get('values', signal)), or(source.ask('info', {}, signal)), or(source.get('channels', signal))])
      return { health, values: values?.data, log: info?.records.find((one) => one.kind === 'log'), channels }
    },
    show: ({ health, values, log, channels }) => [h('ul.sentences', nowSentences(health?.data, values, log, channels)), values ? dials(values) : null],
  })
  const every = setInterval(() => { if (!document.hidden) sentences.again() }, 10_000)
  until.addEventListener('abort', () => clearInterval(every))
  return [
    h('div.lead', h('h1', 'Now'), h('p.second', 'Asked again every ten seconds.')), sentences,
    h('div', { class: 'columns' },
      panel({ title: 'What needs you', until, load: (signal) => source.ask('doctor', {}, signal), show: (answer) => {
        const bad = worstFirst(answer.records)
        return [bad.length ? [h('ul.checks', bad.slice(0, 3).map(checkLine)), bad.length > 3 ? h('p', `and ${bad.length - 3} more remarks.`) : null] : h('p', h('span.received', '✓ '), `All ${answer.records.length} checks of the doctor are fine.`), h('p', h('a', { href: '#/house' }, `All ${answer.records.length} checks`))]
      } }),
      panel({ title: 'The newest changes', until, load: (signal) => source.ask('tail', { limit: 6 }, signal), show: (answer) => answer.records.length ? h('ul.lines', answer.records.filter((one) => one.offset !== undefined).map((change) => h('li', at(change.offset), ' ', time(change.time), ` ${change.op} ${change.table ?? change.prefix ?? ''}`))) : h('p.second', 'The log has no change yet.') })),
  ]
}

/** @param {any} health @param {any} values @param {any} log @param {any} channels */
export function nowSentences(health, values, log, channels) {
  const last = (name) => values?.figures?.[name]?.values.at(-1)
  const line = (glyph, tone, text, small) => h('li', h('span', { class: `glyph ${tone}`, 'aria-hidden': 'true' }, glyph), text, small ? h('span.small', small) : null)
  const lines = []
  const lag = last('slot_lag_seconds')
  if (!health) lines.push(line('?', 'unknown', 'The health is unknown.', 'your role may not ask for it'))
  else if (!health.replication_connected) lines.push(line('✕', 'missed', 'No changes arrive: the hub is not connected to PostgreSQL.', 'See the doctor, and the log of the hub.'))
  else if (lag > 10) lines.push(line('◇', 'later', `Changes arrive ${length(lag * 1e6)} late.`, `${size(last('slot_lag_bytes') ?? 0)} of WAL wait`))
  else lines.push(line('✓', 'received', 'Changes stream from PostgreSQL as they are committed.', lag === undefined ? 'figures appear ten seconds after the start' : `${size(last('slot_lag_bytes') ?? 0)} of WAL wait; the slot keeps ${size(last('slot_kept_bytes') ?? 0)}`))
  if (channels) {
    const behind = Math.max(0, ...channels.data.map((one) => one.behind ?? 0))
    lines.push(line(behind > 1000 ? '◇' : '✓', behind > 1000 ? 'later' : 'received', `${plural(last('users') ?? 0, 'client')} on ${plural(channels.channels, 'channel')}${channels.channels ? `; ${behind ? `the furthest behind lacks ${plural(behind, 'change')}` : 'none is behind'}` : ' at the moment'}.`, channels.loops_without_answer ? `${plural(channels.loops_without_answer, 'loop')} did not answer, so some are not counted` : null))
  } else if (last('channels') !== undefined) lines.push(line('✓', 'received', `${plural(last('users'), 'client')} on ${plural(last('channels'), 'channel')}.`, null))
  const gaps = values?.figures?.gaps_total?.values
  if (gaps?.length) {
    const grown = gaps.at(-1) - gaps[0]
    lines.push(grown || gaps.at(-1) ? line('✕', 'missed', `The log has ${plural(gaps.at(-1), 'gap')} since the hub's start${grown ? `, ${grown} of them in the last hour` : ''}.`, 'clients were told to fetch their data again') : line('✓', 'received', "No gap in the log since the hub's start.", null))
  }
  if (log) {
    const free = last('data_free_bytes')
    lines.push(line(free !== undefined && free < 1e9 ? '✕' : '✓', free !== undefined && free < 1e9 ? 'missed' : 'received', log.changes ? `The log has ${plural(log.changes, 'change')}, @${log.first_offset} to @${log.end_offset - 1}, in ${size(log.bytes)}.` : 'The log has no change yet.', [`back to ${moment(log.from)} UTC`, log.retention_known ? `, keeps ${length(log.retention_seconds * 1e6)} or ${size(log.retention_bytes)}` : '', free === undefined ? '' : `, ${size(free)} free on the disk`]))
  }
  return lines
}

/** @param {any} values */
function dials(values) {
  const times = values.times
  const step = values.interval_seconds
  const dial = (name, title, words) => {
    const figure = values.figures[name]
    if (!figure || figure.values.length === 0) return null
    const series = figure.total ? figure.values.slice(1).map((value, index) => Math.max(0, value - figure.values[index]) / step) : figure.values
    return h('div.card', h('p.second', title), h('p.figure', words(series.at(-1) ?? 0)), spark(series), h('p.small.second', `at most ${words(Math.max(0, ...series))}`))
  }
  const rate = (value) => `${value < 10 ? value.toFixed(1) : number(Math.round(value))}/s`
  return [h('div.dials', dial('transactions_ingested_total', 'Transactions', rate), dial('deliveries_total', 'Deliveries', rate), dial('users', 'Clients', number), dial('slot_lag_bytes', 'WAL that waits', size), dial('log_size_bytes', 'Log', size)),
    h('p.searched', times.length > 1 ? `From ${times[0].slice(11, 19)} to ${times.at(-1).slice(11, 19)} UTC, one value every ${step} s, from the hub's memory. A restart of the hub empties it.` : 'The hub has just begun to collect figures.')]
}

/** @param {any} context */
function reportLead({ source }) {
  const { changes, ledger, who } = source.data
  const first = changes[0]
  return [h('ul.sentences', h('li', h('span.glyph.received', '✓'), `${plural(changes.length, 'change')}${first ? `, @${first.offset} to @${changes.at(-1).offset}` : ''}.`, first ? h('span.small', `${moment(first.time)} to ${moment(changes.at(-1).time)} UTC`) : null),
    h('li', h('span.glyph.received', '✓'), `${plural(ledger.length, 'record')} of the ledger.`), who ? h('li', h('span.glyph.received', '✓'), `Who was told is answered for ${plural(Object.keys(who).length, 'change')}.`) : null),
  h('p', h('a.button', { href: '#/stream' }, 'Show the changes'), ' ', h('a.button', { href: '#/lanes?from=oldest' }, 'Show the clients'))]
}

// Channels

/** @param {Context} context */
export function channelsPage(context) {
  const { source, place, until } = context
  context.command('tidewire subs')
  const wanted = place.query.find ?? ''
  const list = panel({
    until, lines: 8, load: (signal) => source.get('channels', signal),
    show: (census) => {
      const text = (one) => JSON.stringify(one).toLowerCase()
      const rows = census.data.filter((one) => !wanted || text(one).includes(wanted.toLowerCase()))
      if (!census.data.length) return [empty('No channel is joined', 'Once a client joins a channel it appears here.'), h('p.searched', `Asked the hub's loops; the log's end is @${census.end}.`)]
      /** @type {Map<string, any[]>} */
      const topics = new Map()
      for (const one of rows) topics.set(one.topic, [...(topics.get(one.topic) ?? []), one])
      const isAdmin = context.session.role === 'admin'
      return [
        h('div.dials', [...topics].sort((one, other) => other[1].length - one[1].length).slice(0, 12).map(([topic, all]) => {
          const behind = Math.max(0, ...all.map((one) => one.behind ?? 0))
          return h('div.card', h('strong', topicName(topic)), h('p.figure', number(all.length)), h('p', { class: `small ${behind ? 'later' : 'second'}` }, behind ? `◇ up to ${plural(behind, 'change')} behind` : 'none is behind'))
        })),
        table({
          label: 'Channels', rows, tools: `${plural(rows.length, 'channel')}, the furthest behind first`,
          columns: [
            ['topic', (one) => topicName(one.topic), 'tight'],
            ['user', (one) => user(one.user ?? one.sub ?? ''), 'tight'],
            ['role', (one) => one.role ?? '', 'tight'],
            ['behind', (one) => number(one.behind ?? 0), 'num'],
            ['state', (one) => one.state ?? one.stands ?? '', 'tight'],
            ['session', (one) => one.session ? h('a.mono', { href: writePlace('lanes', [], { session: String(one.session).split('/')[0] }) }, one.session) : '–', 'tight'],
            ['listens to', (one) => h('span.value', Array.isArray(one.bindings) ? one.bindings.map((binding) => typeof binding === 'string' ? binding : `${binding.event ?? ''} ${binding.schema ?? ''}.${binding.table ?? ''} ${binding.filter ?? ''}`).join('; ') : one.bindings ?? ''), '', (one) => one.bindings],
            ...(isAdmin ? [/** @type {Column} */ (['action', (one) => one.user ?? one.sub ? h('button.plain', { onclick: () => askKick(context, one) }, 'Disconnect …') : ''])] : []),
          ],
        }),
        h('p.searched', `${plural(census.channels, 'channel')} in all; listed are ${census.data.length < census.channels ? `the ${number(census.data.length)} furthest behind` : 'all of them'}${wanted ? `, and of these those with “${wanted}”` : ''}. The log's end is @${census.end}.${census.loops_without_answer ? ` ${plural(census.loops_without_answer, 'loop')} did not answer.` : ''}`),
      ]
    },
  })
  const every = setInterval(() => { if (!document.hidden && !document.querySelector('dialog[open], details[open]')) list.again() }, 5000)
  until.addEventListener('abort', () => clearInterval(every))
  const form = h('form.row', { onsubmit: (event) => { event.preventDefault(); context.change({ find: String(new FormData(form).get('find')) }) } }, h('label.field', 'Find', h('input', { type: 'text', name: 'find', value: wanted, placeholder: 'topic, user, table' })), h('button', { type: 'submit' }, 'Filter'))
  return [h('div.lead', h('h1', 'Channels'), h('p.second', 'Who listens now, to what, and how far each is behind.')), form, list]
}

/** @param {Context} context @param {any} one */
function askKick({ source }, one) {
  const name = one.user ?? one.sub
  const result = h('div')
  const dialog = h('dialog', { 'aria-label': 'Disconnect a user' }, h('form', { method: 'dialog', onsubmit: async (event) => {
    if (/** @type {HTMLButtonElement} */ (event.submitter).value !== 'go') return
    event.preventDefault()
    const data = Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (event.target)))
    try {
      await source.send('POST', 'kick', { user: name, reason: String(data.reason) })
      toast('Disconnected')
      dialog.close()
    } catch (error) { fill(result, failure(error)) }
  } }, h('h2', `Disconnect ${name}?`), h('p.second', 'All channels of the user end. Its clients may connect again at once. The audit keeps your name and the reason.'), h('label.field', 'Reason', h('input', { type: 'text', name: 'reason', required: true })), result, h('div.row', h('button.first', { value: 'go' }, 'Disconnect'), h('button', { value: 'no', formnovalidate: true }, 'Cancel'))))
  document.body.append(dialog)
  dialog.addEventListener('close', () => dialog.remove())
  dialog.showModal()
}

// Rules

/** @param {Context} context */
export function rulesPage(context) {
  const { source, place, until } = context
  const { table: name } = place.query
  const params = { table: name, from: 'oldest' }
  context.command(commandLine('policies', params))
  const tables = h('select', { 'aria-label': 'Table', onchange: () => context.change({ table: tables.value }) }, h('option', { value: '' }, 'every table'), name ? h('option', { value: name, selected: true }, name) : null)
  context.tables().then((names) => { for (const one of names) if (one !== name) tables.append(h('option', { value: one }, one)) }).catch(() => {})
  return [
    h('div.lead', h('h1', 'Rules'), h('p.second', 'Policies, grants and the publication over time, as the log recorded them.')),
    h('label.field', 'Table', tables),
    panel({
      title: 'History', until, lines: 6, load: (signal) => source.ask('policies', params, signal),
      show: (answer) => {
        if (!answer.records.length) return [unknown('The log does not have the rules', 'Rules are recorded when the hub reads the catalog. A bundle has them if it was made with --policies.'), searched(answer, 'the whole log')]
        /** @type {Map<string, any[]>} */
        const moments = new Map()
        for (const one of answer.records) {
          const isFirst = one.before == null && 'before' in one && answer.records[0].time === one.time
          const key = `${one.time} ${isFirst || !('before' in one) ? 'first' : ''}`
          moments.set(key, [...(moments.get(key) ?? []), one])
        }
        return [h('ol.steps', [...moments].map(([key, changes]) => {
          const isFirst = key.endsWith('first')
          const body = changes.map((one) => h('div', h('p', h('strong', one.table), one.policy ? ` policy “${one.policy}”` : '', one.role ? ` for ${one.role}` : ''), isFirst ? h('pre', one.after ?? one.text) : textDifference(one.before, one.after)))
          return h('li', h('span', { class: `glyph ${isFirst ? 'gone' : 'denied'}` }, isFirst ? '○' : '●'), h('div', h('h3', time(changes[0].time, true), ' UTC, ', at(changes[0].offset), isFirst ? `: ${plural(changes.length, 'rule')} as they were first recorded` : `: ${plural(changes.length, 'rule')} changed`), isFirst && changes.length > 4 ? h('details', h('summary', 'Show them'), body) : body))
        })), searched(answer, `the rules of ${name || 'every table'} in the whole log. The time is that of reading them, a moment after they changed`)]
      },
    }),
    whatIf(context),
  ]
}

/** The command that plays an edited policy over the past. It runs SQL, so it runs beside a database and not from a browser. @param {Context} context */
function whatIf({ place }) {
  const area = h('textarea', { rows: 5, 'aria-label': 'Proposed SQL', spellcheck: 'false', placeholder: 'ALTER POLICY own ON public.orders USING (owner = auth.uid() OR status = \'open\');' }, place.query.sql ?? '')
  const line = h('pre')
  const draw = () => fill(line, `cat >proposal.sql <<'END'\n${area.value.trim() || area.getAttribute('placeholder')}\nEND\ntidewire whatif --policy proposal.sql --on "$STAGING" --from -1d`)
  area.addEventListener('input', draw)
  draw()
  return h('section.panel', h('h2', 'What if?'), h('p.second', 'Write the SQL of a migration. The command applies it in a staging database, in a transaction that it rolls back, and lists who would have gained or lost which rows of the past day. A browser may not run SQL, so the console only writes the line.'), area, line, h('button', { onclick: () => toClipboard(line.textContent ?? '') }, 'Copy the command'))
}

// House

/** @param {any[]} checks */
function worstFirst(checks) {
  return checks.filter((check) => check.state !== 'ok').sort((one, other) => Number(other.required) - Number(one.required))
}


/** @param {any} check */
export function checkLine(check) {
  const [glyph, tone] = check.state === 'ok' ? ['✓', 'received'] : check.required ? ['✕', 'missed'] : ['◇', 'later']
  return h('li', h('span', { class: `glyph ${tone}`, role: 'img', 'aria-label': check.state }, glyph), h('p', h('strong', check.name), ` ${check.detail}`), check.hint && check.hint !== check.sql ? h('p.second', check.hint) : null, check.sql ? [h('pre', check.sql), h('button', { onclick: () => toClipboard(check.sql) }, 'Copy the SQL')] : null)
}

/** @param {Context} context */
export function housePage(context) {
  const { source, until } = context
  context.command(commandLine('doctor', {}))
  return [
    h('div.lead', h('h1', 'House'), h('p.second', 'Checks, settings with their sources, log and disk, and who did what.')),
    panel({ title: 'Doctor', until, lines: 5, load: (signal) => source.ask('doctor', {}, signal), show: (answer) => {
      const bad = worstFirst(answer.records)
      const good = answer.records.filter((check) => check.state === 'ok')
      return [h('ul.checks', bad.map(checkLine)), bad.length ? null : h('p', h('span.received', '✓ '), 'Everything is as the hub needs it.'), h('details', h('summary', `${plural(good.length, 'check')} passed`), h('ul.checks', good.map(checkLine))), searched(answer, `${plural(answer.records.length, 'check')} of the settings, the database and the logins`)]
    } }),
    h('div', { class: 'columns' },
      panel({ title: 'Log and disk', until, load: (signal) => Promise.all([source.ask('info', {}, signal), source.get('values', signal).catch(() => null)]), show: ([info, values]) => {
        const log = info.records.find((one) => one.kind === 'log')
        const value = (name) => values?.data?.figures?.[name]?.values.at(-1)
        const fact = (name, text) => text == null ? null : [h('dt', name), h('dd', text)]
        return [h('dl.facts', fact('changes', log && `${number(log.changes)}, @${log.first_offset} to @${log.end_offset}`), fact('since', log && [time(log.from, true), ' UTC']), fact('size', log && `${size(log.bytes)} in ${plural(log.segments, 'segment')}`), fact('retention', log?.retention_known ? `${length(log.retention_seconds * 1e6)} or ${size(log.retention_bytes)}` : 'unknown'), fact('epochs', log?.epochs?.length), fact('disk free', value('data_free_bytes') === undefined ? null : size(value('data_free_bytes'))), fact('slot keeps', value('slot_kept_bytes') === undefined ? null : `${size(value('slot_kept_bytes'))} of WAL`), fact('last LSN', log && h('span.mono', log.last_lsn))),
          verifyPart(context)]
      } }),
      panel({ title: 'Projects', until, load: (signal) => source.projects ? source.projects(signal) : Promise.resolve([]), show: (projects) => table({ label: 'Projects', rows: projects, columns: [
        ['name', (one) => one.external_id], ['suspended', (one) => one.suspend ? 'yes' : 'no'], ['most clients', (one) => number(one.max_concurrent_users), 'num']] }) })),
    panel({ title: 'Settings', until, load: (signal) => source.get('config', signal), show: ({ data }) => {
      const own = data.filter((one) => !one.default)
      /** @type {Column[]} */
      const columns = [['setting', (one) => h('span.mono', { title: one.summary }, one.name), 'tight'], ['value', (one) => h('span.value', one.value), '', (one) => one.value], ['from', (one) => one.source]]
      return [table({ label: 'Changed settings', rows: own, columns, tools: `${plural(own.length, 'setting')} that differ from the default` }), h('details', h('summary', `All ${data.length} settings`), table({ label: 'All settings', rows: data, columns }))]
    } }),
    panel({ title: 'Audit', until, load: (signal) => Promise.all([source.ask('audit', {}, signal), source.ask('audit', { reads: true }, signal)]), show: ([done, read]) => {
      const of = (label, rows) => table({ label, rows: rows.reverse(), tools: `${plural(rows.length, 'line')}, the newest first`, columns: [
        ['time (UTC)', (one) => time(one.time, true), 'tight'], ['who', (one) => one.operator || one.user || ''], ['action', (one) => one.action, 'tight'], ['what', (one) => h('span.value', one.what)], ['because', (one) => one.reason ?? '']] })
      return [done.records.length ? of('What was done', done.records.slice()) : h('p.second', 'Nobody unmasked a value, sent a signal, or changed anything.'), h('details', h('summary', `${plural(read.records.length, 'read')} of operators`), of('Reads', read.records.slice())), searched(done, 'the audit file of the log, and that of reads')]
    } }),
    panel({ title: 'Blocks', until, load: (signal) => source.get('blocks', signal), show: ({ data }) => data.length ? table({ label: 'Blocks', rows: data, columns: [['whom', (one) => one.user ?? one.login], ['until (UTC)', (one) => time(one.until, true)], ['by', (one) => one.by], ['because', (one) => one.reason]] }) : h('p.second', 'Nobody is blocked.') }),
    bundlePart(context),
  ]
}

/** Reads all of the log, so only when it is asked to. @param {Context} context */
function verifyPart({ source, until }) {
  const place = h('div')
  const show = ({ records }) => {
    const bad = records.filter((one) => one.ok === false)
    return bad.length ? h('div.state.bad', h('strong', `✕ ${plural(bad.length, 'segment')} damaged`), bad.map((one) => h('p', `${one.path}: ${one.problems.join('; ')}`)), h('p.second', 'tidewire log verify says more; docs/operating.md says what to do.')) : h('p', h('span.received', '✓ '), `Every checksum of ${plural(records.length, 'segment')} was verified.`)
  }
  fill(place, h('button', { onclick: () => fill(place, panel({ until, lines: 1, load: (signal) => source.ask('verify', {}, signal), show })) }, 'Verify every checksum'))
  return place
}

/** @param {Context} context */
function bundlePart({ source }) {
  if (source.kind !== 'hub') return null
  const form = h('form.row', { onsubmit: (event) => {
    event.preventDefault()
    const data = Object.fromEntries(new FormData(form))
    location.assign(`${source.root}/log/bundle?${new URLSearchParams(/** @type {any} */ ({ from: data.from, policies: 'true', ...(data.note ? { note: data.note } : {}) }))}`)
  } }, h('label.field', 'From', h('input', { type: 'text', name: 'from', value: '-1h', size: 8 })), h('label.field', 'Note', h('input', { type: 'text', name: 'note', placeholder: 'notes vanish' })), h('button', { type: 'submit' }, 'Save a bundle'))
  return h('section.panel', h('h2', 'Take it along'), h('p.second', 'A bundle is one masked file with a window of the log. Colleagues read it with tidewire open FILE --web, and without a hub.'), form)
}
