// @ts-check
// Parts of pages: panels with their states, tables, outcomes, lanes. samples.js shows each of them in each state.
import { clock, copied, isMask, isoOf, length, micros, moment, number, ORDER, outcome, plural, shortName, shown, writePlace, topicName } from './words.js'
import { eachFrame, fill, h, toClipboard } from './view.js'
import { AskError } from './source.js'

/**
 * What a page gets: where it is, whom it asks, and where it says which command is equal.
 * @typedef {{
 *   source: any, session: any, place: import('./words.js').Place, until: AbortSignal,
 *   tables: () => Promise<string[]>, command: (line: string) => void, change: (query: Record<string, any>) => void,
 * }} Context
 */

/** A time, which is copied in full when it is clicked. @param {string | null | undefined} iso @param {boolean} [withDay] */
export function time(iso, withDay = false) {
  if (!iso) return h('span.second', '–')
  return h('time', { datetime: iso, title: `${iso} (UTC). Click to copy.`, onclick: (event) => { event.stopPropagation(); toClipboard(iso) } }, withDay ? moment(iso) : clock(iso))
}

/** @param {string} name @param {Record<string, any>} [options] */
export function badge(name, { isDerived = false, count = null } = {}) {
  const { glyph, word, tone, text } = outcome(name)
  return h('span', { class: `badge ${tone} ${tone === 'unknown' ? '' : isDerived ? 'derived' : 'recorded'}`, title: `${text}${isDerived ? ' (derived: filters and policies were evaluated again)' : ' (recorded)'}` },
    h('span', `${glyph} `, count === null ? '' : `${number(count)} `, word))
}

/** Counts by outcome: a bar, and the same as words. @param {Record<string, {all: number, derived: number}>} counts */
export function tally(counts) {
  const names = ORDER.filter((name) => counts[name]?.all).concat(Object.keys(counts).filter((name) => !ORDER.includes(name) && counts[name].all))
  if (names.length === 0) return h('p.second', 'No client was there for this change.')
  const bars = names.flatMap((name) => {
    const { tone } = outcome(name)
    const { all, derived } = counts[name]
    return [[all - derived, tone], [derived, `${tone} derived`]].filter(([count]) => count).map(([count, tone]) => h('i', { class: tone, style: { 'flex-grow': count } }))
  })
  const words = names.map((name) => h('li', { class: outcome(name).tone }, h('span.glyph', { 'aria-hidden': 'true' }, outcome(name).glyph), ' ', h('b', number(counts[name].all)), ` ${outcome(name).word}`, counts[name].derived ? h('span.second', counts[name].derived === counts[name].all ? ' (derived)' : ` (${number(counts[name].derived)} derived)`) : null))
  return h('div', h('div.tally', { 'aria-hidden': 'true' }, bars), h('ul.legend', words))
}

/** What the three ways of drawing mean. */
export function drawingKey() {
  return h('p.small.second.row', h('span.badge.sent.recorded', h('span', 'recorded')), 'the ledger says it',
    h('span.badge.sent', h('span', 'derived')), 'evaluated again from the log', h('span.badge.unknown', h('span', '? unknown')), 'the ledger does not show it')
}

/** @param {string} sub */
export function user(sub) {
  return sub ? standsFor(h('a.mono', { href: writePlace('lanes', [], { user: sub }), title: sub }, shortName(sub)), sub) : h('span.second', 'no user')
}

/** @param {number | string} offset */
export function at(offset) {
  return h('a', { href: writePlace('change', [offset]), class: 'mono' }, `@${offset}`)
}

/** @param {any} value */
export function valueOf(value) {
  return standsFor(h('span', { class: isMask(value) ? 'value masked' : value == null ? 'value second' : 'value', title: isMask(value) ? 'masked: equal values have equal masks in one answer' : null }, cut(shown(value))), shown(value))
}

/** A long value is cut, so that one row cannot fill the page; the copy is whole. @param {string} text */
function cut(text) {
  if (text.length <= 400) return text
  return [text.slice(0, 320), h('button.plain', { title: 'Copy the whole value', onclick: (event) => { event.stopPropagation(); toClipboard(text) } }, `… ${number(text.length)} characters`)]
}

// States

/** @param {string} title @param {any} text @param {...any} more */
export function empty(title, text, ...more) {
  return h('div.state', h('strong', title), h('p.second', text), ...more)
}

/** @param {string} title @param {string} text @param {...any} more */
export function unknown(title, text, ...more) {
  return h('div.state.hatched', h('strong.unknown', `? ${title}`), h('p', text), ...more)
}

const FAILURES = {
  'signed out': ['You are signed out', 'The session has ended. Sign in again; this page stays where it is.'],
  role: ['Your role does not allow this', ''],
  offline: ['The hub cannot be reached', 'What is on the page is from before.'],
  busy: ['The hub is busy', 'It answers two questions at a time, and others wait.'],
  question: ['The hub does not understand the question', ''],
  nothing: ['Nothing here', ''],
  large: ['The answer is too large', 'A smaller window of time, or one table, is answered.'],
  cut: ['The log, or the answer, is damaged', 'See House, and tidewire log verify.'],
  hub: ['The hub failed', 'Its log has the reason.'],
}

/** @param {any} error @param {() => void} [again] */
export function failure(error, again) {
  const kind = error instanceof AskError ? error.kind : 'hub'
  const [title, text] = FAILURES[kind]
  return h('div', { class: `state ${kind === 'nothing' ? '' : 'bad'}`, role: 'alert' }, h('strong', title), h('p', error?.message ?? String(error)), text ? h('p.second', text) : null,
    kind === 'signed out' ? h('button.first', { onclick: () => dispatchEvent(new Event('signed-out')) }, 'Sign in')
      : again && kind !== 'role' && kind !== 'question' ? h('button', { onclick: again }, 'Try again') : null)
}

/**
 * A part of a page that loads by itself, and says how far it is.
 * @param {{title?: string, load: (signal: AbortSignal) => Promise<any>, show: (value: any, again: () => void) => any, until: AbortSignal, tools?: any, lines?: number}} options
 */
export function panel({ title, load, show, until, tools, lines = 3 }) {
  const body = h('div')
  const box = h('section.panel', { 'aria-busy': 'true' }, title || tools ? h('header', title ? h('h2', title) : null, tools ? h('div.row', tools) : null) : null, body)
  /** @type {AbortController} */
  let run
  const begin = async (isAgain = false) => {
    run?.abort()
    const mine = (run = new AbortController())
    const stop = () => mine.abort()
    until.addEventListener('abort', stop)
    box.setAttribute('aria-busy', 'true')
    const note = h('p.small.second')
    if (!isAgain || !body.firstChild) fill(body, h('div.waiting', { role: 'status', 'aria-label': 'Loading', style: { 'min-height': `${lines * 24}px` } }, h('i'), h('i'), h('i'), note))
    const slow = setTimeout(() => fill(note, 'The hub is still reading the log … ', h('button', { onclick: stop }, 'Cancel')), 1500)
    const slower = setTimeout(() => fill(note, 'This takes long. A smaller window of time is faster. ', h('button', { onclick: stop }, 'Cancel')), 8000)
    try {
      const shown = await show(await load(mine.signal), () => begin(true))
      if (mine === run) fill(body, shown)
    } catch (error) {
      if (until.aborted || mine !== run) return
      if (mine.signal.aborted) fill(body, empty('Cancelled', 'The hub has stopped working on this.', h('button', { onclick: () => begin() }, 'Ask again')))
      else fill(body, failure(error, begin))
      if (error instanceof AskError && error.kind === 'busy') setTimeout(() => { if (!until.aborted && mine === run) begin() }, (error.retry ?? 2) * 1000)
      if (!(error instanceof AskError) && !mine.signal.aborted) console.error(error)
    } finally {
      clearTimeout(slow)
      clearTimeout(slower)
      until.removeEventListener('abort', stop)
      if (mine === run) box.setAttribute('aria-busy', 'false')
    }
  }
  begin()
  return Object.assign(box, { again: () => begin(true) })
}

/** What was searched, and how long that took. @param {import('./source.js').Answer} answer @param {string} text */
export function searched(answer, text) {
  return h('p.searched', answer.isCut ? h('strong.missed', `The answer ended early, so this is only a part. ${answer.remarks.slice(0, 300)} `) : null, `Searched: ${text}.`, answer.took ? ` Answered in ${length(answer.took * 1000)}.` : '')
}

// Tables

/**
 * Column of a table: its name, what a cell shows, how ('num', 'tight'), and what its copy has if that is something else.
 * @typedef {[name: string, cell: (row: any) => any, how?: string, text?: (row: any) => any]} Column
 */

/** What elements stand for that show less: their copies have the whole. @type {WeakMap<Element, string>} */
const wholes = new WeakMap()

/** @template T @param {T} element @param {string} text @returns {T} */
export function standsFor(element, text) {
  wholes.set(/** @type {any} */ (element), text)
  return element
}

/** Text of a cell, as a copy has it: times, users and values in full. @param {any} cell @returns {any} */
export function plainOf(cell) {
  if (Array.isArray(cell)) return cell.map(plainOf).join('')
  if (cell == null || cell === false) return ''
  if (!(cell instanceof Element)) return cell
  const whole = cell.getAttribute('datetime') ?? wholes.get(cell)
  return whole ?? Array.from(cell.childNodes, (node) => (node instanceof Element ? plainOf(node) : node.textContent)).join('')
}

/**
 * A table: with a copy of its rows, keys j and k, and only the visible rows in the page if there are many.
 * @param {{columns: Column[], rows: any[], label: string, open?: (row: any) => string | null, mark?: (row: any) => boolean, tools?: any}} options
 */
export function table({ columns, rows, label, open, mark, tools }) {
  const height = 33
  const isWindowed = rows.length > 120
  const body = h('tbody')
  const view = h('div', { class: `scroll ${isWindowed ? 'tall' : ''}`, tabindex: '0', role: 'region', 'aria-label': label },
    h('table', { class: isWindowed ? 'windowed' : null, 'aria-rowcount': rows.length + 1 }, h('thead', h('tr', columns.map(([name, , how]) => h('th', { scope: 'col', class: how === 'num' ? how : null }, name)))), body))
  let chosen = -1
  const line = (row, index) => {
    const address = open?.(row)
    return h('tr', { class: [address ? 'opens' : '', mark?.(row) ? 'before' : ''].join(' ').trim() || null, 'aria-selected': index === chosen ? 'true' : null, 'aria-rowindex': isWindowed ? index + 2 : null, onclick: address ? (event) => { if (!(/** @type {Element} */ (event.target)).closest('a, button') && !getSelection()?.toString()) location.hash = address } : null },
      columns.map(([, cell, how]) => h('td', { class: how || null }, cell(row))))
  }
  const draw = () => {
    if (!isWindowed) return fill(body, rows.map(line))
    const first = Math.max(0, Math.floor(view.scrollTop / height) - 10)
    const last = Math.min(rows.length, first + Math.ceil((view.clientHeight || 700) / height) + 20)
    const space = (count) => count > 0 ? h('tr.space', { 'aria-hidden': 'true' }, h('td', { colspan: columns.length, style: { height: `${count * height}px` } })) : null
    fill(body, space(first), rows.slice(first, last).map((row, index) => line(row, first + index)), space(rows.length - last))
  }
  const later = eachFrame(draw)
  if (isWindowed) view.addEventListener('scroll', later, { passive: true })
  view.addEventListener('keydown', (event) => {
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key]
    if (step && !event.altKey && !event.ctrlKey && !event.metaKey) {
      event.preventDefault()
      chosen = Math.min(rows.length - 1, Math.max(0, chosen + step))
      if (isWindowed) {
        const top = chosen * height
        if (top < view.scrollTop + height) view.scrollTop = top - height
        if (top > view.scrollTop + view.clientHeight - 2 * height) view.scrollTop = top - view.clientHeight + 3 * height
      }
      draw()
      body.querySelector('[aria-selected]')?.scrollIntoView({ block: 'nearest' })
    }
    const address = event.key === 'Enter' && event.target === view && chosen >= 0 ? open?.(rows[chosen]) : null
    if (address) location.hash = address
  })
  draw()
  const box = h('div', h('div.row.end', h('span.small.second', tools ?? plural(rows.length, 'line')), copyMenu(columns, () => rows)), view)
  return Object.assign(box, {
    /** Shows other rows, and stays where it is. @param {any[]} next */
    update(next) { rows = next; later() },
    view,
  })
}

/** @param {Column[]} columns @param {() => any[]} rows */
export function copyMenu(columns, rows) {
  const whole = (form) => copied(columns.map(([name]) => name), rows().map((row) => columns.map(([, cell, , text]) => (text ? text(row) : plainOf(cell(row))))), form)
  const close = (event) => /** @type {Element} */ (event.target).closest('details')?.removeAttribute('open')
  return h('details.menu', h('summary.button', { 'aria-label': 'Copy this table' }, 'Copy'), h('div', null,
    [['text', 'as text'], ['md', 'as Markdown'], ['csv', 'as CSV'], ['json', 'as JSON']].map(([form, name]) => h('button', { onclick: (event) => { close(event); toClipboard(whole(form)) } }, name))))
}

/**
 * Lets an admin see the values of a column, for a reason that the audit keeps.
 * @param {Context} context @param {any} change
 */
export function unmaskButton({ source, session }, change) {
  const masked = Object.entries(change?.record ?? change?.old_record ?? {}).filter(([, value]) => isMask(value)).map(([name]) => name)
  const again = () => dispatchEvent(new Event('hashchange'))
  if (source.unmasked?.unmask) return h('p.missed', `${source.unmasked.unmask} is shown in clear, because: ${source.unmasked.because} `, h('button', { onclick: () => { source.unmasked = {}; again() } }, 'Mask it again'))
  if (source.kind !== 'hub' || session.role !== 'admin' || !masked.length) return null
  const dialog = h('dialog', { 'aria-label': 'Unmask a column' }, h('form', { method: 'dialog', onsubmit: (event) => {
    const data = Object.fromEntries(new FormData(event.target))
    if (event.submitter.value !== 'go') return
    source.unmasked = { unmask: String(data.column), because: String(data.because) }
    again()
  } }, h('h2', 'Show the values of a column?'), h('p.second', 'The audit keeps your name, the column and the reason. The column is masked again when the page is loaded anew.'),
  h('label.field', 'Column', h('select', { name: 'column' }, masked.map((name) => h('option', name)))), h('label.field', 'Reason', h('input', { type: 'text', name: 'because', required: true, size: 40 })), h('div.row', h('button.first', { value: 'go' }, 'Show'), h('button', { value: 'no', formnovalidate: true }, 'Cancel'))))
  dialog.addEventListener('close', () => dialog.remove())
  return h('button', { onclick: () => { document.body.append(dialog); dialog.showModal() } }, 'Unmask …')
}

/** Columns of a row, with what a change did to them. @param {any} change */
export function recordTable(change) {
  const before = change.old_record
  const names = [...new Set([...Object.keys(change.key ?? {}), ...Object.keys(change.record ?? {}), ...Object.keys(before ?? {})])]
  return table({
    label: 'Columns of the row', rows: names, tools: change.op === 'UPDATE' && !before ? 'The old row is not in the log (REPLICA IDENTITY FULL would write it).' : plural(names.length, 'column'),
    columns: [
      ['column', (name) => [h('span.mono', name), change.key && name in change.key ? h('span.small.second', ' key') : null], 'tight'],
      ['value', (name) => {
        if (change.op === 'UPDATE' && before && change.changed?.includes(name)) return [h('del', h('span.hidden', 'before: '), valueOf(before[name])), h('ins', h('span.hidden', 'after: '), valueOf(change.record?.[name]))]
        if (change.op === 'DELETE') return h('del', h('span.hidden', 'removed: '), valueOf(before?.[name]))
        return valueOf((change.record ?? before)?.[name])
      }, '', (name) => (change.record ?? before)?.[name]],
    ],
  })
}

// Pictures

/**
 * Lanes of channels over time. Below 640 pixels the picture scrolls; the table under it says the same.
 * @param {{lanes: any[], from: number, to: number, cuts?: {time: number, text: string}[], marks?: {time: number, text: string}[], label: string}} options
 */
export function lanesPicture({ lanes, from, to, cuts = [], marks = [], label }) {
  const [left, right, rowHeight, head] = [208, 16, 28, 24]
  const width = 1000
  const span = Math.max(1, to - from)
  const x = (time) => left + ((Math.min(to, Math.max(from, time)) - from) / span) * (width - left - right)
  const height = head + lanes.length * rowHeight + 8
  const drawn = lanes.slice(0, 200)
  return h('div.scroll', { tabindex: '0', role: 'region', 'aria-label': label }, h('svg.lanes', { viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': label },
    [0, 0.25, 0.5, 0.75, 1].map((part) => {
      const time = from + part * span
      return [h('line.axis', { x1: x(time), x2: x(time), y1: head - 4, y2: height }), h('text', { x: x(time), y: 14, 'text-anchor': part === 0 ? 'start' : part === 1 ? 'end' : 'middle' }, span > 6e9 ? moment(isoOf(time)).slice(5, 16) : clock(isoOf(time)).slice(0, span > 6e7 ? 8 : 12))]
    }),
    cuts.map((cut) => h('g', h('line.cut', { x1: x(cut.time), x2: x(cut.time), y1: head - 6, y2: height }), h('title', {}, cut.text))),
    drawn.map((lane, index) => {
      const y = head + index * rowHeight
      const bars = lane.bars.map((bar) => [bar.from ?? from, bar.to ?? to, bar])
      const gaps = bars.slice(1).map((bar, place) => [bars[place][1], bar[0]])
      return h('g', h('text.name', { x: 0, y: y + 16 }, (shortName(lane.user || '').slice(0, 13) + ' ' + topicName(lane.topic)).slice(0, 29), h('title', {}, `${lane.user || 'no user'}, ${lane.name}, ${lane.topic}`)),
        gaps.map(([start, end]) => h('line.away', { x1: x(start), x2: x(end), y1: y + 12, y2: y + 12 })),
        bars.map(([start, end, bar]) => h('rect', { class: `bar ${bar.tail || bar.from === null ? 'tail' : ''}`, x: x(start), y: y + 6, width: Math.max(2, x(end) - x(start)), height: 12, rx: 3 }, h('title', {}, `${bar.from === null ? 'joined before the window' : 'joined ' + isoOf(start)}; ${bar.to === null ? 'no end in the window' : `left ${isoOf(end)}${bar.end ? ': ' + bar.end : ''}`}`))),
        lane.sent.slice(0, 400).map((sent) => h('svg:a', { href: writePlace('change', [sent.offset]), 'aria-label': `Change @${sent.offset}` }, h('circle', { class: `sent ${sent.isDerived ? 'derived' : ''}`, cx: x(sent.time), cy: y + 12, r: 4 }, h('title', {}, `@${sent.offset} sent ${isoOf(sent.time)}`)))))
    }),
    marks.map((mark) => h('g', h('line.mark', { x1: x(mark.time), x2: x(mark.time), y1: head - 8, y2: height }), h('text', { x: x(mark.time) + (x(mark.time) > width / 2 ? -4 : 4), y: height - 2, 'text-anchor': x(mark.time) > width / 2 ? 'end' : 'start' }, mark.text)))))
}

/** @param {number[]} values */
export function spark(values) {
  const most = Math.max(1, ...values)
  const points = values.map((value, index) => `${((index / Math.max(1, values.length - 1)) * 100).toFixed(2)},${(46 - (value / most) * 42).toFixed(2)}`)
  if (values.length < 2) return h('svg.spark', { 'aria-hidden': 'true' })
  return h('svg.spark', { viewBox: '0 0 100 48', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    h('line', { x1: 0, x2: 100, y1: 46, y2: 46 }), h('path.under', { d: `M0,46 L${points.join(' L')} L100,46 Z` }), h('path', { d: `M${points.join(' L')}` }))
}

/** Way of a change, step by step. @param {{name: string, text: any, note?: any, tone?: string, how?: string}[]} steps */
export function path(steps) {
  return h('ol.path', steps.map((step) => h('li', { class: [step.tone ?? 'received', step.how ?? ''].join(' ') }, h('span.small', step.name), h('span', step.text), step.note ? h('span.small', step.note) : null)))
}

/** Difference of two texts, by lines. @param {string | null} before @param {string | null} after */
export function textDifference(before, after) {
  return h('pre', before ? before.split('\n').map((line) => h('span.less', `− ${line}`)) : null, after ? after.split('\n').map((line) => h('span.more', `+ ${line}`)) : null)
}

/** Window of events, a little wider than they are. @param {any[]} lanes */
export function spanOf(lanes) {
  const times = lanes.flatMap((lane) => [...lane.bars.flatMap((bar) => [bar.from, bar.to]), ...lane.sent.map((sent) => sent.time)]).filter((time) => time != null)
  const [first, last] = [Math.min(...times), Math.max(...times)]
  const margin = Math.max(1e5, (last - first) * 0.03)
  return { from: first - margin, to: last + margin }
}

/** @param {string} iso @param {string} other */
export function between(iso, other) {
  return length(micros(other) - micros(iso))
}
