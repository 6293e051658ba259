// @ts-check
// The style page: each part in each state.
import { OUTCOMES } from './words.js'
import { h } from './view.js'
import { badge, drawingKey, empty, failure, lanesPicture, panel, path, recordTable, spark, table, tally, textDifference, unknown } from './parts.js'
import { AskError } from './source.js'
/** @typedef {import('./parts.js').Context} Context */

/** @param {Context} context */
export function stylePage({ until, command }) {
  command('tidewire help')
  const section = (title, ...content) => h('section.panel', h('header', h('h2', title)), content)
  const never = () => new Promise((_, refuse) => until.addEventListener('abort', () => refuse(until.reason)))
  const hour = 1_796_000_000_000_000
  return [
    h('div.lead', h('h1', 'What the parts mean'), h('p', 'Colour says how a delivery ended, and a glyph and a word say the same. Solid is recorded, outlined derived, hatched unknown.')),
    section('Outcomes', h('table', h('thead', h('tr', h('th', { scope: 'col' }, 'recorded'), h('th', { scope: 'col' }, 'derived'), h('th', { scope: 'col' }, 'meaning'))), h('tbody', Object.entries(OUTCOMES).map(([name, one]) => h('tr', h('td', badge(name)), h('td', badge(name, { isDerived: true })), h('td', one.text)))))),
    section('Counts', tally({ received: { all: 812, derived: 0 }, sent: { all: 96, derived: 40 }, sent_later: { all: 14, derived: 14 }, not_matched: { all: 230, derived: 230 }, not_sent: { all: 2, derived: 0 }, ended_before: { all: 31, derived: 0 }, unknown: { all: 5, derived: 0 } }), drawingKey()),
    section('Way of a change', path([{ name: 'Committed', text: '13:41:49.084', note: 'xid 906' }, { name: 'Sent', text: '13:41:49.085', note: '1.4 ms later', tone: 'sent' }, { name: 'Sent', text: '2 clients', note: 'derived', tone: 'sent', how: 'derived' }, { name: 'Acknowledged', text: '–', note: 'unknown', tone: 'unknown', how: 'unknown' }])),
    section('Lanes', lanesPicture({ label: 'Example of lanes', from: hour, to: hour + 6e7, cuts: [{ time: hour + 4.4e7, text: 'the hub began' }], marks: [{ time: hour + 2e7, text: '@6' }], lanes: [
      { name: 'a/1', user: 'ana', topic: 'realtime:listing-5', bars: [{ from: hour + 2e6, to: hour + 4.4e7, end: 'restart' }, { from: hour + 4.6e7, to: null }], sent: [{ time: hour + 2e7, offset: 6 }, { time: hour + 4.7e7, offset: 9, isDerived: true }] },
      { name: 'b/1', user: 'ben', topic: 'realtime:listing-5', bars: [{ from: null, to: hour + 1e7, tail: true, end: 'the connection was reset' }], sent: [] }] })),
    section('Columns', recordTable({ op: 'UPDATE', key: { id: 1 }, record: { id: 1, body: 'called: 420 000', phone: '*** d4438ed1', note: null }, old_record: { id: 1, body: 'call back', phone: '*** d4438ed1', note: null }, changed: ['body'] })),
    section('Differences', textDifference('USING (listing IN (SELECT …))', 'USING (author = auth.uid())')),
    section('Figures', h('div.dials', h('div.card', h('p.second', 'Transactions'), h('p.figure', '412/s'), spark([3, 5, 8, 13, 21, 13, 40, 35, 20, 12, 14, 18])), h('div.card', h('p.second', 'Nothing yet'), h('p.figure', '0'), spark([])))),
    section('States', h('div', { class: 'columns' },
      panel({ title: 'Loading', until, load: never, show: () => null }),
      h('div', h('h3', 'Empty'), empty('No change in this window', 'The log has no change that fits.')),
      h('div', h('h3', 'Unknown'), unknown('Not everything is known', 'For some clients the ledger has no record of this time.')),
      ...['signed out', 'role', 'offline', 'busy', 'question', 'cut', 'hub'].map((kind) => h('div', h('h3', kind), failure(new AskError(/** @type {any} */ (kind), 'What the hub says about it.'), () => {}))))),
    section('A table of many lines', table({ label: 'Many lines', rows: Array.from({ length: 40_000 }, (_, index) => index), columns: [['line', (index) => index, 'num'], ['text', (index) => `only the lines that can be seen are in the page (${index})`]] })),
    section('Controls', h('div.row', h('button.first', 'First'), h('button', 'Other'), h('button', { 'aria-pressed': 'true' }, 'Pressed'), h('button', { disabled: true }, 'Not now'), h('button.plain', 'Plain'), h('input', { type: 'text', 'aria-label': 'Text', value: 'a text' }), h('kbd', '/'))),
  ]
}
