// Unit tests of the console's logic: what the search box means, copies, lanes, and what a client believes.
import { commandLine, compared, copied, countOutcomes, isMask, lanesOf, length, meanings, micros, isoOf, readPlace, rowsAfter, shortName, size, summary, writePlace } from '../../Sources/hub/CPages/console/words.js'
import { FileSource, readLines } from '../../Sources/hub/CPages/console/source.js'

function equal(given, wanted) {
  const [one, other] = [JSON.stringify(given), JSON.stringify(wanted)]
  if (one !== other) throw new Error(`expected ${other}, got ${one}`)
}

Deno.test('the search box knows what a text means', () => {
  const tables = ['office.notes', 'office.toasts', 'public.orders']
  const first = (text) => meanings(text, tables)[0]?.go
  equal(first('@6'), 'change/6')
  equal(first(' 6 '), 'change/6')
  equal(first('xid:906'), 'tx/906')
  equal(first('0/18061A0'), 'tx/0%2F18061A0')
  equal(first('-15m'), 'stream?from=-15m')
  equal(first('-15min'), 'stream?from=-15m')
  equal(first('notes 1'), 'row/office.notes/1')
  equal(first('office.notes 1'), 'row/office.notes/1')
  equal(first('likes 5,7'), 'row/likes/5/7')
  equal(first('orders'), 'stream?table=public.orders')
  equal(first('00000000-0000-4000-8000-00000000be00'), 'lanes?user=00000000-0000-4000-8000-00000000be00')
  equal(first('1985fa48fa548000'), 'lanes?session=1985fa48fa548000')
  equal(first('@6 ben@example.com'), 'why/6?user=ben%40example.com')
  equal(first('@3 … @9'), 'stream?from=@3&to=@9')
  equal(first('2026-11-30 13:41'), 'stream?from=2026-11-30T13%3A41')
  equal(first('ben@example.com'), 'lanes?user=ben%40example.com')
  equal(first(''), undefined)
  equal(first('<img src=x>'), undefined)
})

Deno.test('an address keeps everything that it is given', () => {
  const place = readPlace(writePlace('row', ['odd "schema".t/x', 'a b&c'], { at: 7, none: '' }))
  equal(place, { page: 'row', args: ['odd "schema".t/x', 'a b&c'], query: { at: '7' } })
  equal(readPlace('').page, 'now')
  equal(readPlace('#/%E0%A4%A/x').page, '%E0%A4%A')
})

Deno.test('the equal command is quoted for a shell', () => {
  equal(commandLine('who', { offset: '@6', gone: true }), 'tidewire who @6 --gone')
  equal(commandLine('row', { table: "it's", key: ['1', '$(x)'] }), `tidewire row 'it'\\''s' 1 '$(x)'`)
  equal(commandLine('info', {}), 'tidewire log info')
  equal(commandLine('tail', { from: '-1h', limit: 5, to: '' }), 'tidewire tail --from -1h --limit 5')
})

Deno.test('a copy of a table harms no spreadsheet and no page', () => {
  const rows = [['=HYPERLINK("x")', 'a,"b"', null], ['<b>', 'a|b\nc', -3]]
  equal(copied(['one', 'two', 'three'], rows, 'csv'), `one,two,three\r\n"'=HYPERLINK(""x"")","a,""b""",\r\n<b>,"a|b\nc",-3\r\n`)
  equal(copied(['one', 'two', 'three'], rows, 'md').split('\n')[3], '| &lt;b> | a\\|b c | -3 |')
  equal(copied(['one'], [['x'], [{ a: 1 }]], 'json'), '{"one":"x"}\n{"one":{"a":1}}\n')
  equal(copied(['one', 'two'], [['x', 'y']], 'text'), 'one  two\nx    y\n')
})

Deno.test('times keep their microseconds', () => {
  const time = '2026-11-30T13:41:49.084567Z'
  equal(isoOf(micros(time)), time)
  equal(micros('2026-11-30T13:41:49Z') % 1e6, 0)
  equal([length(400), length(1412), length(84_567), length(2_500_000), length(75e6), length(4e9)], ['400 µs', '1.4 ms', '85 ms', '2.5 s', '1 min 15 s', '1 h 7 min'])
  equal([size(12), size(1500), size(247_695)], ['12 B', '1.5 kB', '248 kB'])
})

Deno.test('masks and names are recognised', () => {
  equal([isMask('*** 0712bb2d'), isMask('***'), isMask('*** and more'), isMask(null)], [true, true, false, false])
  equal([shortName('00000000-0000-4000-8000-00000000be00'), shortName('ana'), shortName('')], ['00000000…be00', 'ana', 'no user'])
})

const change = (offset, op, id, body, more = {}) => ({ offset, op, schema: 'office', table: 'notes', key: { id }, time: `2026-11-30T13:41:${String(offset).padStart(2, '0')}.000000Z`, record: op === 'DELETE' ? null : { id, body }, old_record: null, ...more })

Deno.test('what a client believes is what it was sent', () => {
  const changes = [change(1, 'INSERT', 1, 'a'), change(2, 'INSERT', 2, 'b'), change(3, 'UPDATE', 1, 'c'), change(4, 'DELETE', 2, null), change(5, 'INSERT', 3, 'd')]
  const truth = rowsAfter(changes)
  equal([...truth.keys()], ['office.notes 1', 'office.notes 3'])
  const belief = rowsAfter(changes.filter((one) => [1, 2].includes(one.offset)))
  equal(compared(truth, belief).map((row) => [row.name, row.verdict]), [['office.notes 1', 'stale'], ['office.notes 3', 'missing'], ['office.notes 2', 'left over']])
  equal(compared(truth, rowsAfter(changes)).every((row) => row.verdict === 'equal'), true)
  equal([...rowsAfter([...changes, { op: 'TRUNCATE', schema: 'office', table: 'notes' }]).keys()], [])
})

Deno.test('a lane that began before the window has only its tail', () => {
  const events = [
    { event: 'left', time: '2026-11-30T13:41:01Z', session: 'a', channel: 1, topic: 'realtime:x', user: 'ana', reason: 'reset', offset: 4 },
    { event: 'joined', time: '2026-11-30T13:41:02Z', session: 'b', channel: 1, topic: 'realtime:x', user: 'ana', bindings: null, reason: 'went on from e.4', offset: 4 },
    { event: 'sent', time: '2026-11-30T13:41:03Z', session: 'b', channel: 1, offset: 5 },
    { event: 'began', time: '2026-11-30T13:41:04Z', session: '0', channel: 0 },
  ]
  const { lanes, restarts } = lanesOf(events)
  equal(lanes.map((lane) => [lane.bars[0].tail, lane.bars[0].from === null, lane.bars[0].to === null, lane.sent.length, lane.resumed]), [[true, true, false, 0, ''], [false, false, true, 1, 'went on from e.4']])
  equal(restarts.length, 1)
})

Deno.test('counts come before details, and keep what is derived apart', () => {
  equal(countOutcomes([{ outcome: 'sent', basis: 'recorded' }, { outcome: 'sent', basis: 'derived' }, { outcome: 'unknown', basis: 'recorded' }]), { sent: { all: 2, derived: 1 }, unknown: { all: 1, derived: 0 } })
  equal(summary({ op: 'UPDATE', changed: ['a'], old_record: { a: 1 }, record: { a: null } }), 'a: 1 → NULL')
})

Deno.test('an answer that ends in the middle of a line is a part', () => {
  equal(readLines('{"a":1}\n{"b":'), { records: [{ a: 1 }], isCut: true })
  equal(readLines('{"a":1}\n').isCut, false)
  let said = ''
  try { readLines('{"a"\n{"b":2}\n') } catch (error) { said = error.kind }
  equal(said, 'cut')
})

Deno.test('a report answers what was asked when it was made, and nothing else', async () => {
  const source = new FileSource({ project: 'report', changes: [change(1, 'INSERT', 1, 'a'), change(2, 'UPDATE', 1, 'b')], ledger: [{ event: 'joined', session: 'a', user: 'ana', time: '2026-11-30T13:41:00Z' }, { event: 'sent', session: 'a', offset: 1, time: '2026-11-30T13:41:01Z' }], who: { 1: [{ outcome: 'sent' }] }, why: { '1 ana': [{ told: true }] }, policies: [], info: [], stats: [] })
  const count = async (command, params) => (await source.ask(command, params)).records.length
  equal([await count('tail', { from: '@2' }), await count('tail', { to: '@2' }), await count('tail', { limit: 1 }), await count('row', { table: 'office.notes', key: ['1'] }), await count('user', { sub: 'ana' }), await count('who', { offset: '@1' }), await count('why', { offset: '@1', sub: 'ana' })], [1, 1, 1, 2, 2, 1, 1])
  const [answer] = await source.askAll([['who', { offset: '@2' }]])
  equal(answer.kind, 'nothing')
})
