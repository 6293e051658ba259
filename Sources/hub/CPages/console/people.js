// @ts-check
// Pages about clients: Lanes, Two truths, Film.
import { clock, commandLine, compared, isMask, isoOf, keyText, lanesOf, length, micros, plural, rowName, rowsAfter, shorter, shortName, shown, summary, writePlace, topicName, boundTable } from './words.js'
import { fill, h } from './view.js'
import { at, badge, empty, lanesPicture, panel, searched, spanOf, standsFor, table, time, unknown, user } from './parts.js'
/** @typedef {import('./parts.js').Context} Context */

// Lanes

/** @param {Context} context */
export function lanesPage(context) {
  const { source, place, until } = context
  const { user: sub, session, from, to } = place.query
  const [command, params] = sub ? ['user', { sub, from, to, deliveries: true }] : ['session', { session, from: session ? from : from ?? '-1h', to, deliveries: session ? true : undefined }]
  context.command(commandLine(command, params))
  const form = h('form.row', { onsubmit: (event) => { event.preventDefault(); const data = Object.fromEntries(new FormData(form)); location.hash = writePlace('lanes', [], data) } },
    h('label.field', 'User', h('input', { type: 'text', name: 'user', value: sub ?? '', size: 38, placeholder: 'everybody' })), h('label.field', 'Session', h('input', { type: 'text', name: 'session', value: session ?? '', size: 18 })),
    h('label.field', 'From', h('input', { type: 'text', name: 'from', value: from ?? '', placeholder: '-1h', size: 10 })), h('label.field', 'To', h('input', { type: 'text', name: 'to', value: to ?? '', placeholder: 'the end', size: 10 })), h('button', { type: 'submit' }, 'Show'))
  return [
    h('div.lead', h('h1', sub ? `Lanes of ${shortName(sub)}` : session ? `Session ${session}` : 'Lanes'), h('p.second', 'Each channel of a client: when it was joined, what it was sent, and when it was away.')), form,
    panel({
      until, lines: 20, load: (signal) => source.ask(command, params, signal),
      show: (answer) => {
        const { lanes, restarts } = lanesOf(answer.records)
        const where = sub ? `everything that the ledger has of ${sub}` : session ? `everything that the ledger has of the session` : `the ledger ${from ? `from ${from}` : 'of the last hour'}${to ? ` to ${to}` : ''}`
        if (!lanes.length) return [empty('No client in the ledger', 'No channel of a client was joined, left or refused in this window. Where the setting ledger is off, nothing is recorded.', sub || session ? null : h('a.button', { href: '#/lanes?from=oldest' }, 'Show the whole ledger')), searched(answer, where)]
        const span = spanOf(lanes)
        const hasTails = lanes.some((lane) => lane.bars.some((bar) => bar.tail))
        return [
          lanesPicture({ lanes, ...span, label: 'Channels over time', cuts: restarts.map((restart) => ({ time: micros(restart.time), text: `the hub ${restart.event === 'began' ? 'began' : 'ended'} at ${restart.time}` })) }),
          lanes.length > 200 ? h('p.small.second', `Drawn are the first 200 of ${plural(lanes.length, 'channel')}; the table has all of them.`) : null,
          hasTails ? unknown('Only a tail', 'Channels with a dashed edge were joined before this window, so their beginning is not shown.') : null,
          h('p.small.second', 'The axis has UTC, and the clock of the hub. ○ is a change that was sent; a dotted line is time away; a broken red line is a start of the hub.', lanes.some((lane) => lane.sent.length) ? '' : ' Deliveries are recorded one by one only with ledger = full.'),
          table({
            label: 'Channels', rows: lanes, open: sub ? undefined : (lane) => writePlace('lanes', [], { user: lane.user }),
            columns: [
              ['user', (lane) => user(lane.user), 'tight'],
              ['session', (lane) => h('a.mono', { href: writePlace('lanes', [], { session: lane.session }) }, lane.name), 'tight'],
              ['topic', (lane) => topicName(lane.topic), 'tight'],
              ['joined (UTC)', (lane) => lane.bars[0]?.from ? time(isoOf(lane.bars[0].from)) : h('span.unknown', '? before'), 'tight'],
              ['left (UTC)', (lane) => lane.bars.at(-1)?.to ? time(isoOf(lane.bars.at(-1).to)) : '–', 'tight'],
              ['sent', (lane) => lane.sent.length, 'num'],
              ['began with', (lane) => lane.resumed || 'the present end'],
              ['ended by', (lane) => lane.bars.at(-1)?.end ?? ''],
              ['truths', (lane) => lane.bindings.length ? h('a', { href: writePlace('truths', [], { session: lane.session, channel: lane.channel }) }, 'Two truths') : ''],
            ],
          }),
          searched(answer, where),
        ]
      },
    }),
  ]
}

// What clients believe

/**
 * Everything that is known of the rows of a channel's tables and of what its client was sent.
 * @param {any} source @param {any} lane @param {AbortSignal} signal
 */
async function story(source, lane, signal) {
  const names = [...new Set(lane.bindings.map((binding) => boundTable(binding)))]
  // Rows that changed long before the join are not read.
  const from = (await source.start(signal)) === 'oldest' ? 'oldest' : `@${Math.max(0, (lane.bars[0]?.offset ?? 0) - 2000)}`
  const questions = names.filter((name) => !name.endsWith('.*')).map((name) => ['tail', { table: name, from, limit: 4000 }])
  const answers = questions.length ? await source.askAll(questions, signal) : []
  const failed = answers.find((answer) => answer instanceof Error)
  if (failed) throw failed
  const changes = answers.flatMap((answer) => answer.records).filter((change) => change.op !== 'MESSAGE').sort((one, other) => one.offset - other.offset)
  const sent = new Map(lane.sent.map((one) => [one.offset, { time: one.time, isDerived: false }]))
  if (sent.size === 0) {
    // Without ledger = full, the log is asked for each change who was told; the newest forty, because each takes a while.
    const newest = changes.filter((change) => lane.bars[0]?.from == null || micros(change.time) >= lane.bars[0].from - 1e6).slice(-40)
    const told = await source.askAll(newest.map((change) => ['who', { offset: `@${change.offset}`, user: lane.user || undefined }]), signal)
    for (const [index, answer] of told.entries()) {
      const own = answer.records?.find((client) => client.session === lane.session && client.channel === lane.channel)
      if (own && /^(sent|received)/.test(own.outcome)) sent.set(newest[index].offset, { time: own.sent_at ? micros(own.sent_at) : micros(newest[index].time), isDerived: true })
    }
  }
  return { names, changes, sent, from, isCut: answers.some((answer) => answer.records.length >= 4000) }
}

/** Condition `column=eq.value` of a binding; others are not evaluated here. @param {any[]} bindings @param {any} row */
function isWanted(bindings, row) {
  return bindings.some((binding) => {
    if (boundTable(binding) !== `${row.change.schema}.${row.change.table}`) return false
    const match = /^([^=]+)=eq\.(.*)$/.exec(binding.filter ?? '')
    return !match || !(match[1] in row.record) || shown(row.record[match[1]]) === match[2]
  })
}

/** @param {any} source @param {string} session @param {AbortSignal} signal */
async function laneEvents(source, session, signal) {
  return lanesOf((await source.ask('session', { session, deliveries: true }, signal)).records).lanes
}

// Two truths

/** @param {Context} context */
export function truthsPage(context) {
  const { source, place, until } = context
  const { session, channel = '1', at: when } = place.query
  const lead = h('div.lead', h('h1', 'Two truths'), h('p.second', 'What the table said, and what one client believed, at one moment: and which policy, filter or gap stands between.'))
  if (!session) return [lead, sessionChoice(context, 'truths')]
  context.command(commandLine('session', { session, deliveries: true }))
  return [lead, panel({
    until, lines: 20,
    load: async (signal) => {
      const lanes = await laneEvents(source, session, signal)
      const lane = lanes.find((one) => String(one.channel) === channel) ?? lanes[0]
      if (!lane) return null
      return { lane, lanes, ...(await story(source, lane, signal)) }
    },
    show: (value) => {
      if (!value) return [empty('The ledger has no such session', 'Its records are older than retention, or the ledger is off.'), sessionChoice(context, 'truths')]
      const { lane, lanes, names, changes, sent, from, isCut } = value
      if (!changes.length) return empty('No row to compare', `The log has no change of ${names.join(', ') || 'a table of this channel'}.`)
      const moments = momentsOf(changes, lane)
      const start = Math.max(0, when === undefined ? moments.length - 1 : moments.findIndex((one) => one.offset >= Number(when)))
      const view = h('div')
      const slider = h('input', { type: 'range', min: 0, max: moments.length - 1, value: start, 'aria-label': 'Moment', oninput: () => draw(Number(slider.value)), onchange: () => context.change({ session, channel, at: moments[Number(slider.value)].offset }) })
      const draw = (index) => fill(view, comparison(moments[index], { lane, changes, sent }))
      draw(start)
      return [
        h('p', user(lane.user), ' on ', h('strong', topicName(lane.topic)), `, session ${lane.name}: ${lane.bindings.map((binding) => `${binding.event} of ${binding.table}${binding.filter ? ` where ${binding.filter}` : ''}`).join('; ')}. `, lanes.length > 1 ? ['Other channels: ', lanes.filter((one) => one !== lane).map((one) => [h('a', { href: writePlace('truths', [], { session, channel: one.channel }) }, topicName(one.topic)), ' '])] : null),
        h('div.card', h('label.small.second', `Moment, from @${moments[0].offset} to @${moments.at(-1)?.offset}`), slider), view,
        h('p.searched', `Searched: ${plural(changes.length, 'change')} of ${names.join(', ')} from ${from}${isCut ? ' (the first 4 000)' : ''}, and what session ${lane.name} was sent. The client may also have fetched rows itself: the log does not know that.`),
      ]
    },
  })]
}

/** Moments at which something changed: each change, and the last one after the end. @param {any[]} changes @param {any} lane */
function momentsOf(changes, lane) {
  return changes.map((change) => ({ offset: change.offset, time: micros(change.time), iso: change.time })).concat(lane.bars.at(-1)?.to && lane.bars.at(-1).to > micros(changes.at(-1).time) ? [{ offset: changes.at(-1).offset, time: lane.bars.at(-1).to, iso: isoOf(lane.bars.at(-1).to) }] : [])
}

/** @type {Record<string, string[]>} */
const VERDICTS = { equal: ['=', 'received', 'both say the same'], missing: ['✕', 'missed', 'the client has no such row'], stale: ['◇', 'later', 'the client has an older version'], 'left over': ['⌁', 'missed', 'the client still has a row that is gone'], 'not asked for': ['–', 'denied', 'the filter of the channel leaves it out'] }

/** @param {any} moment @param {any} story */
function comparison(moment, { lane, changes, sent }) {
  const truth = rowsAfter(changes.filter((change) => change.offset <= moment.offset))
  const belief = rowsAfter(changes.filter((change) => { const one = sent.get(change.offset); return one && one.time <= moment.time + 1e6 && change.offset <= moment.offset }))
  const rows = compared(truth, belief)
  const isAway = !lane.bars.some((bar) => (bar.from ?? 0) <= moment.time && (bar.to ?? Infinity) >= moment.time)
  const isDerived = [...sent.values()].some((one) => one.isDerived)
  for (const row of rows) if (row.verdict === 'missing' && !isWanted(lane.bindings, row.truth)) row.verdict = 'not asked for'
  const unequal = rows.filter((row) => !['equal', 'not asked for'].includes(row.verdict)).length
  const between = (row) => {
    const change = (row.truth ?? row.belief)?.change
    if (row.verdict === 'equal') return ''
    if (row.verdict === 'not asked for') return [h('span.badge.denied.recorded', h('span', '– filter')), ` it asked for ${lane.bindings.map((one) => one.filter).filter(Boolean).join(', ')}`]
    const began = lane.bars[0]?.from
    if (began && change && micros(change.time) < began && !lane.resumed) return [h('span.badge.gone.recorded', h('span', '⌁ before')), ' it changed before the client joined, which may have fetched it']
    if (isAway && change && lane.bars.at(-1)?.to && micros(change.time) > lane.bars.at(-1).to) return [h('span.badge.gone.recorded', h('span', '⌁ away')), ` the client had left: ${lane.bars.at(-1).end}`]
    const last = row.truth?.change ?? changes.filter((one) => rowName(one) === row.name && one.offset <= moment.offset).at(-1)
    return last ? h('a', { href: writePlace('why', [last.offset], { user: lane.user, role: lane.role, session: lane.name }) }, `Why not @${last.offset}?`) : ''
  }
  return [
    h('h2', 'As of ', time(moment.iso, true), ' UTC, ', at(moment.offset), ': ', unequal === 0 ? h('span.received', 'both say the same') : h('span.missed', `${plural(unequal, 'row')} of ${rows.length} differ`)),
    isAway ? h('p.gone', '⌁ The client was not connected at this moment.') : null,
    table({
      label: 'What the table said, and what the client believed', rows, tools: isDerived ? h('span', badge('sent', { isDerived: true }), ' What was sent is derived, not recorded (ledger = full would record it).') : h('span', badge('sent'), ' What was sent is recorded.'),
      columns: [
        ['row', (row) => h('span.mono', row.name), 'tight'],
        ['the table said', (row) => row.truth ? recordLine(row.truth) : h('span.second', 'no such row'), '', (row) => row.truth?.record],
        ['verdict', (row) => h('span', { class: VERDICTS[row.verdict][1], title: VERDICTS[row.verdict][2] }, `${VERDICTS[row.verdict][0]} ${row.verdict}`), 'tight'],
        ['the client believed', (row) => row.belief ? recordLine(row.belief) : h('span.second', 'no such row'), '', (row) => row.belief?.record],
        ['what stands between', between, '', (row) => row.verdict],
      ],
    }),
  ]
}

/** @param {any} row */
function recordLine(row) {
  return [at(row.offset), ' ', h('span.value', Object.entries(row.record).filter(([name]) => !(name in (row.change.key ?? {}))).map(([name, value]) => [`${name}: `, standsFor(h('span', { class: isMask(value) ? 'masked' : null }, shorter(shown(value)).slice(0, 200)), shown(value)), ' ']))]
}

/** @param {Context} context @param {string} page */
function sessionChoice(context, page) {
  const { source, until, place } = context
  return panel({
    title: 'Choose a client', until, lines: 6,
    load: async (signal) => {
      const from = place.query.from ?? await source.start(signal)
      return { from, ...(await source.ask('session', { from }, signal)) }
    },
    show: (answer) => {
      const lanes = lanesOf(answer.records).lanes.filter((lane) => lane.bindings.length)
      if (!lanes.length) return [empty('No client with tables in the ledger', 'A client that only sends broadcasts believes nothing about rows.', answer.from === 'oldest' ? null : h('a.button', { href: writePlace(page, [], { from: 'oldest' }) }, 'Search the whole ledger')), searched(answer, `the ledger from ${answer.from}`)]
      return [table({
        label: 'Clients', rows: lanes, open: (lane) => writePlace(page, [], { session: lane.session, channel: lane.channel }),
        columns: [
          ['user', (lane) => user(lane.user), 'tight'], ['topic', (lane) => topicName(lane.topic), 'tight'],
          ['session', (lane) => h('a.mono', { href: writePlace(page, [], { session: lane.session, channel: lane.channel }) }, lane.name), 'tight'],
          ['joined (UTC)', (lane) => lane.bars[0]?.from ? time(isoOf(lane.bars[0].from), true) : '? before', 'tight'],
          ['tables', (lane) => lane.bindings.map((one) => `${one.table}${one.filter ? ` (${one.filter})` : ''}`).join(', '), '', (lane) => lane.bindings],
        ],
      }), searched(answer, `the ledger from ${answer.from}`)]
    },
  })
}

// Film

/** @param {Context} context */
export function filmPage(context) {
  const { source, place, until } = context
  const { table: wanted, at: from } = place.query
  context.command(commandLine('tail', { from: from ? `@${from}` : 'oldest', table: wanted }))
  const lead = h('div.lead', h('h1', 'Film'), h('p.second', 'The table and the screens of its clients, change by change. Space plays and pauses; the arrow keys step.'))
  return [lead, panel({
    until, lines: 20,
    load: async (signal) => {
      const begin = from ? `@${from}` : await source.start(signal)
      const ledger = await source.ask('session', { from: begin === 'oldest' ? begin : '-1h' }, signal)
      const sessions = [...new Set(lanesOf(ledger.records).lanes.filter((lane) => lane.bindings.length).map((lane) => lane.session))].slice(0, 40)
      const told = await source.askAll(sessions.map((session) => ['session', { session, deliveries: true }]), signal)
      const { lanes } = lanesOf(told.flatMap((one) => one.records ?? []))
      const screens = lanes.filter((lane) => lane.bindings.length)
      const names = [...new Set(screens.flatMap((lane) => lane.bindings.map((one) => boundTable(one))))].filter((name) => !name.endsWith('.*')).sort()
      const name = wanted ?? mostUsed(screens) ?? names[0]
      if (!name) return null
      const answer = await source.ask('tail', { table: name, from: begin.startsWith('@') && (await source.start(signal)) === 'oldest' ? 'oldest' : begin, limit: 1000 }, signal)
      return { screens: screens.filter((lane) => lane.bindings.some((one) => boundTable(one) === name)).slice(0, 24), names, name, answer, isRecordedOne: lanes.some((lane) => lane.sent.length) }
    },
    show: (value) => {
      if (!value) return empty('No film to show', 'The ledger has no client that listened to a table.')
      const { screens, names, name, answer } = value
      const changes = answer.records.filter((change) => change.op !== 'MESSAGE')
      if (!changes.length) return empty('Nothing happened', `The log has no change of ${name}.`)
      return [chooser(context, names, name), value.isRecordedOne ? null : unknown('What the screens show is not recorded', 'Deliveries are recorded one by one only with ledger = full. The screens stay empty; Two truths derives one of them.'), projector(context, changes, screens, until), searched(answer, `${plural(changes.length, 'change')} of ${name}, and ${plural(screens.length, 'channel')} that listened to it`), h('p.small.second', 'To play the changes into a staging database: ', h('code', `tidewire replay --table ${name} --target postgresql://…`))]
    },
  })]
}

/** Table of the channels to which the most was sent. @param {any[]} lanes */
function mostUsed(lanes) {
  /** @type {Map<string, number>} */
  const counts = new Map()
  for (const lane of lanes) {
    for (const one of lane.bindings) {
      const name = boundTable(one)
      if (one.table && one.table !== '*') counts.set(name, (counts.get(name) ?? 0) + lane.sent.length + 0.01)
    }
  }
  return [...counts].sort((one, other) => other[1] - one[1])[0]?.[0]
}

/** @param {Context} context @param {string[]} names @param {string} name */
function chooser(context, names, name) {
  const select = h('select', { 'aria-label': 'Table', onchange: () => context.change({ table: select.value, at: '' }) }, names.map((one) => h('option', { value: one, selected: one === name }, one)))
  return h('label.field', 'Table', select)
}

/** @param {Context} context @param {any[]} changes @param {any[]} lanes @param {AbortSignal} until */
function projector(context, changes, lanes, until) {
  const moments = [
    ...changes.map((change) => ({ time: micros(change.time), kind: 'change', change, words: `@${change.offset} ${change.op} ${keyText(change.key)}: ${summary(change)}` })),
    ...lanes.flatMap((lane) => [
      ...lane.bars.flatMap((bar) => [bar.from ? { time: bar.from, kind: 'joined', words: `${shortName(lane.user)} joined ${topicName(lane.topic)}${lane.resumed ? ` and ${lane.resumed}` : ''}` } : null, bar.to ? { time: bar.to, kind: 'left', words: `${shortName(lane.user)} left: ${bar.end}` } : null]),
      ...lane.sent.map((sent) => ({ time: sent.time, kind: 'sent', words: `@${sent.offset} was sent to ${shortName(lane.user)}` })),
    ]).filter((one) => one !== null),
  ].sort((one, other) => one.time - other.time)
  const byOffset = new Map(changes.map((change) => [change.offset, change]))
  const wanted = Number(context.place.query.at)
  let index = Math.max(0, Number.isFinite(wanted) ? moments.findIndex((one) => /** @type {any} */ (one).change?.offset >= wanted) : 0)
  const stage = h('div.columns.stage')
  const caption = h('p', { role: 'status' })
  const slider = h('input', { type: 'range', min: 0, max: moments.length - 1, value: index, 'aria-label': 'Moment of the film', oninput: () => { pause(); draw(Number(slider.value)) } })
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer
  const play = h('button.first', { onclick: () => (timer ? pause() : start()) }, '▶ Play')
  const pause = () => { clearInterval(timer); timer = undefined; fill(play, '▶ Play') }
  const start = () => {
    if (index >= moments.length - 1) index = -1
    fill(play, '❚❚ Pause')
    timer = setInterval(() => { if (index >= moments.length - 1) return pause(); draw(index + 1) }, 700)
  }
  until.addEventListener('abort', pause)
  const draw = (next) => {
    index = Math.min(moments.length - 1, Math.max(0, next))
    slider.value = String(index)
    const now = moments[index]
    const pauseBefore = index > 0 ? now.time - moments[index - 1].time : 0
    fill(caption, h('span.mono', `${clock(isoOf(now.time))} UTC `), h('strong', now.words.slice(0, 240)), pauseBefore > 2e6 ? h('span.second', ` after ${length(pauseBefore)} without anything`) : null, h('span.second', ` (${index + 1} of ${moments.length})`))
    const truth = rowsAfter(changes.filter((change) => micros(change.time) <= now.time))
    const fresh = now.kind === 'change' ? rowName(/** @type {any} */ (now).change) : ''
    fill(stage, h('div.card', h('h2', 'The table'), truth.size ? h('ul.rows', [...truth].sort().map(([name, row]) => h('li', { class: name === fresh ? 'new' : null }, at(row.offset), ' ', h('span.value', brief(row.record))))) : h('p.second', 'no row that the log knows')),
      h('div.screens', lanes.map((lane) => screen(lane, now.time, byOffset, truth)).sort((one, other) => one.classList.contains('off') - other.classList.contains('off'))))
  }
  document.addEventListener('keydown', (event) => {
    if (/** @type {Element} */ (event.target).closest('input, select, textarea, button, a')) return
    if (event.key === ' ') { event.preventDefault(); play.click() }
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (step) { event.preventDefault(); pause(); draw(index + step) }
  }, { signal: until })
  draw(index)
  return h('div', h('div.card', h('div.row', play, h('button', { onclick: () => { pause(); draw(index - 1) } }, '← Step'), h('button', { onclick: () => { pause(); draw(index + 1) } }, 'Step →')), slider, caption), stage)
}

/** @param {any} record */
function brief(record) {
  return Object.values(record).map((value) => shorter(shown(value)).slice(0, 40)).join(' · ')
}

/** Screen of a client at a moment. @param {any} lane @param {number} now @param {Map<number, any>} byOffset @param {Map<string, any>} truth */
function screen(lane, now, byOffset, truth) {
  const isOn = lane.bars.some((bar) => (bar.from ?? 0) <= now && now < (bar.to ?? Infinity))
  const had = lane.sent.filter((sent) => sent.time <= now)
  const belief = rowsAfter(had.map((sent) => byOffset.get(sent.offset)).filter(Boolean))
  const last = had.at(-1)
  const hasBegun = lane.bars.some((bar) => (bar.from ?? 0) <= now)
  return h('section', { class: `screen ${isOn ? '' : 'off'}` }, h('header', h('a', { href: writePlace('lanes', [], { user: lane.user }), title: lane.user }, shortName(lane.user)), h('span', { class: isOn ? 'received' : 'gone' }, isOn ? '● joined' : hasBegun ? '⌁ away' : '⌁ not yet')),
    belief.size && (isOn || !hasBegun || had.length) ? h('ul', [...belief].sort().map(([name, row]) => {
      const isStale = truth.get(name)?.offset !== row.offset
      return h('li', { class: isStale ? 'stale' : last && now - last.time < 1000 && row.offset === last.offset ? 'new' : null, title: isStale ? 'the table says something else by now' : null }, isStale ? h('span.missed', { title: 'older than the table' }, '◇ ') : null, h('span.value', brief(row.record)))
    })) : h('p.second.small', hasBegun ? 'was sent no row' : ''))
}
