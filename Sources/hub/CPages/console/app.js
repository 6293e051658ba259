// @ts-check
// The frame: signing in, the search box, the strip of time, pages, keys.
import { clock, isoOf, meanings, micros, moment, number, plural, readPlace, writePlace } from './words.js'
import { fill, h, toast, toClipboard } from './view.js'
import { AskError, FileSource, HubSource, request } from './source.js'
import { failure } from './parts.js'
import { changePage, rowPage, streamPage, transactionPage, whyPage } from './changes.js'
import { filmPage, lanesPage, truthsPage } from './people.js'
import { channelsPage, housePage, nowPage, rulesPage } from './house.js'
import { stylePage } from './samples.js'

/** @type {[string, string, string, (context: any) => any][]} */
const PAGES = [
  ['now', 'Now', 'M2 8h3l2-5 3 10 2-5h2', nowPage],
  ['stream', 'Stream', 'M2 4h12M2 8h12M2 12h8', streamPage],
  ['change', 'Change', 'M8 2v4M8 10v4M8 6a2 2 0 100 4 2 2 0 000-4z', changePage],
  ['row', 'Row', 'M2 3h12v10H2zM2 7h12M6 7v6', rowPage],
  ['lanes', 'Lanes', 'M2 4h7M11 4h3M2 8h3M7 8h7M2 12h12', lanesPage],
  ['why', 'Why not?', 'M5.500 6a2.500 2.500 0 113.500 2.300c-.700.300-1 .800-1 1.700M8 12.800v.200', whyPage],
  ['truths', 'Two truths', 'M2 3h5v10H2zM9 3h5v10H9z', truthsPage],
  ['rules', 'Rules', 'M4 2h8v12H4zM6.500 5.500h3M6.500 8h3M6.500 10.500h2', rulesPage],
  ['film', 'Film', 'M2 3h12v10H2zM6.500 6v4l3.500-2z', filmPage],
  ['channels', 'Channels', 'M8 8h.010M5.500 10.500a3.500 3.500 0 010-5M10.500 5.500a3.500 3.500 0 010 5M3.500 12.500a6.500 6.500 0 010-9M12.500 3.500a6.500 6.500 0 010 9', channelsPage],
  ['house', 'House', 'M2 8l6-5 6 5M4 7v6h8V7', housePage],
]
/** Pages without an entry in the list. @type {Record<string, (context: any) => any>} */
const OTHERS = { tx: transactionPage, style: stylePage }
/** Pages that a report file cannot have. */
const ONLY_OF_HUBS = new Set(['channels', 'house'])

let theme = readTheme()

function readTheme() {
  try { return localStorage.getItem('tidewire-theme') ?? '' } catch { return '' }
}

function showTheme() {
  document.documentElement.dataset.theme = theme
  // A browser may forbid to store it: the choice then lasts as long as the page.
  try { localStorage.setItem('tidewire-theme', theme) } catch { return }
}

// Signing in

/** @param {string} [reason] */
function showSignIn(reason) {
  const said = h('div', { role: 'alert' }, reason ? h('p.missed', reason) : null)
  const field = h('input', { type: 'password', name: 'token', id: 'token', required: true, autocomplete: 'off', spellcheck: 'false' })
  const form = h('form.signin', { onsubmit: async (event) => {
    event.preventDefault()
    const token = field.value.trim()
    field.value = ''
    try {
      await request('/console/session', { method: 'POST', headers: { authorization: `Bearer ${token}` } })
      const kept = await (await request('/console/session')).json()
      if (!kept.signed_in) throw new AskError('hub', 'The browser did not keep the sign-in. It keeps it only over https, or on localhost.')
      start(kept)
    } catch (error) { fill(said, h('p.missed', /** @type {Error} */ (error).message)) }
  } }, h('div.row', logo(40), h('h1', 'Tidewire')), h('p.second', 'See who was told what, when, and why not.'), h('label.field', { for: 'token' }, "An operator's token", field), said, h('button.first', 'Sign in'),
  h('p.small.second', 'deploy/token --operator analyst --subject NAME writes a token. It is sent once and kept nowhere: the browser gets a cookie for at most eight hours.'))
  fill(document.body, h('main', form))
  field.focus()
}

/** @param {number} size */
function logo(size) {
  return h('svg', { viewBox: '0 0 32 32', width: size, height: size, 'aria-hidden': 'true' }, h('rect', { width: 32, height: 32, rx: 7, fill: '#1a6b4a' }), h('path', { d: 'M6 12c3.300-4.400 6.700-4.400 10 0s6.700 4.400 10 0', fill: 'none', stroke: '#fbfaf7', 'stroke-width': 2.600, 'stroke-linecap': 'round' }), h('path', { d: 'M6 20.500c3.300-4.400 6.700-4.400 10 0s6.700 4.400 10 0', fill: 'none', stroke: '#fbfaf7', 'stroke-width': 2.600, 'stroke-linecap': 'round', opacity: 0.6 }))
}

// The frame

/** @param {any} session */
async function start(session) {
  const source = session.data ? new FileSource(session.data) : await openHub(session)
  if (source) showFrame(session, source)
}

/** @param {any} session */
async function openHub(session) {
  try {
    const list = async (until) => (await (await request('/console/api/tenants', { signal: until })).json()).data
    const projects = await list(new AbortController().signal)
    const wanted = readPlace(location.hash).query.project
    const project = projects.find((one) => one.external_id === wanted) ?? projects[0]
    const source = new HubSource(project?.external_id ?? '', project?.bundle ? 'bundle' : 'hub')
    return Object.assign(source, { projects: list, names: projects.map((one) => one.external_id) })
  } catch (error) {
    fill(document.body, h('main.signin', h('h1', 'Tidewire'), failure(error, () => start(session))))
    return null
  }
}

/** @param {any} session @param {any} source */
function showFrame(session, source) {
  /** @type {Promise<string[]> | undefined} */
  let known
  const tables = () => (known ??= (async () => {
    const { records } = await source.ask('stats', { top: 200, from: await source.start() })
    return records.filter((one) => one.kind === 'group' && one.table).map((one) => `${one.schema}.${one.table}`)
  })()).catch((error) => { known = undefined; throw error })
  const main = h('main.page', { id: 'page', tabindex: '-1' })
  const command = h('code', { tabindex: '0' })
  const items = PAGES.filter(([name]) => source.kind === 'hub' || !ONLY_OF_HUBS.has(name)).map(([name, title, path]) => ({ name, title, item: h('a', { href: `#/${name}` }, h('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true' }, h('path', { d: path })), title), isApart: name === 'channels' }))
  const strip = h('figure.strip')
  const banner = h('div.banner.missed', { role: 'status', hidden: true }, '✕ This browser is offline. What is on the page is from before.')
  const online = () => { banner.hidden = source.kind === 'file' || navigator.onLine }
  addEventListener('online', online)
  addEventListener('offline', online)
  fill(document.body, h('a.hidden', { href: '#page', onclick: (event) => { event.preventDefault(); main.focus() } }, 'To the content'), h('div', { class: 'frame' },
    h('header.top', h('a.brand', { href: '#/now', 'aria-label': 'Tidewire, to Now' }, logo(24), h('span', { 'aria-hidden': 'true' }, 'Tidewire')), searchBox(tables), h('div.tools', tools(session, source))),
    h('nav.rail', { 'aria-label': 'Pages' }, h('ul', items.map(({ item, isApart }) => h('li', { class: isApart ? 'apart' : null }, item)))),
    main,
    h('footer.foot', command, h('button.plain', { onclick: () => toClipboard(command.textContent ?? '') }, 'Copy command'), h('button.plain.wide', { onclick: () => print() }, 'Print'), h('button.plain', { onclick: showKeys, 'aria-label': 'Keys' }, h('kbd', '?')))))
  document.body.prepend(banner)
  online()

  /** @type {AbortController | undefined} */
  let shown
  const show = () => {
    shown?.abort()
    shown = new AbortController()
    const place = readPlace(location.hash)
    if (place.query.project && source.kind === 'hub' && place.query.project !== source.project && source.names.includes(place.query.project)) { location.reload(); return }
    const entry = PAGES.find(([name]) => name === place.page)
    const page = entry?.[3] ?? OTHERS[place.page]
    for (const { name, item } of items) {
      const isHere = name === place.page || (name === 'stream' && place.page === 'tx')
      if (isHere) item.setAttribute('aria-current', 'page')
      else item.removeAttribute('aria-current')
      if (isHere) item.scrollIntoView({ block: 'nearest', inline: 'center' })
    }
    document.title = `${[entry?.[1] ?? 'Tidewire', ...place.args].join(' ')} – Tidewire`
    fill(command, `tidewire ${place.page}`)
    const context = {
      source, session, place, until: shown.signal, tables,
      command: (line) => fill(command, line),
      change: (query) => { location.hash = writePlace(place.page, place.args, { ...query, ...(place.query.project ? { project: place.query.project } : {}) }) },
    }
    const content = page ? page(context) : h('div.state', h('h1', 'There is no such page'), h('a', { href: '#/now' }, 'To Now'))
    fill(main, ['stream', 'now', 'lanes', 'film', 'change', 'tx'].includes(place.page) ? strip : null, content)
    scrollTo(0, 0)
  }
  addEventListener('hashchange', show)
  addEventListener('signed-out', () => showSignIn('The session has ended.'))
  document.addEventListener('keydown', keys)
  show()
  drawStrip(strip, source)
}

/** @param {any} session @param {any} source */
function tools(session, source) {
  const next = () => { theme = { '': 'dark', dark: 'light' }[theme] ?? ''; showTheme(); toast({ dark: 'Dark', light: 'Light' }[theme] ?? 'As the system') }
  const masks = source.kind === 'file' ? 'a report' : source.kind === 'bundle' ? 'a bundle' : session.role
  return [
    source.kind === 'hub' && source.names.length > 1 ? h('select', { 'aria-label': 'Project', onchange: (event) => { location.hash = writePlace('now', [], { project: event.target.value }) } }, source.names.map((name) => h('option', { value: name, selected: name === source.project }, name))) : null,
    h('button.plain.wide', { onclick: next, 'aria-label': 'Light or dark' }, '◐'),
    h('details.menu', h('summary.button', masks), h('div', h('p.small.second', source.kind === 'file' ? 'This file has everything: no network is needed.' : [session.subject || 'a token without a name', h('br'), session.by_token ? 'signed in with a token' : 'on the hub’s machine, without a token', h('br'), 'values are masked', h('br'), `version ${session.version}`]),
      h('button', { onclick: next }, 'Light or dark'), session.by_token ? h('button', { onclick: async () => { try { await request('/console/session', { method: 'DELETE' }) } catch (error) { toast(/** @type {Error} */ (error).message) } location.reload() } }, 'Sign out') : null)),
  ]
}

/** @param {() => Promise<string[]>} tables */
function searchBox(tables) {
  /** @type {string[]} */
  let names = []
  let chosen = 0
  /** @type {ReturnType<typeof meanings>} */
  let found = []
  const list = h('ul.found', { role: 'listbox', id: 'found', hidden: true, 'aria-label': 'What this can mean' })
  const draw = () => {
    found = meanings(input.value, names)
    chosen = Math.min(chosen, Math.max(0, found.length - 1))
    list.hidden = found.length === 0
    input.setAttribute('aria-expanded', String(found.length > 0))
    if (found.length) input.setAttribute('aria-activedescendant', `found-${chosen}`)
    else input.removeAttribute('aria-activedescendant')
    fill(list, found.map((one, index) => h('li', { role: 'option', id: `found-${index}`, 'aria-selected': String(index === chosen), onmousedown: (event) => { event.preventDefault(); go(one.go) } }, one.words, h('span.small.second', one.kind))))
  }
  const go = (place) => { location.hash = `#/${place}`; input.value = ''; draw(); input.blur() }
  const input = h('input', { type: 'text', id: 'search', role: 'combobox', 'aria-expanded': 'false', 'aria-controls': 'found', 'aria-label': 'Search: an offset, a row, a user, a session, a time', placeholder: '@6, notes 1, a user, -15m …', autocomplete: 'off', spellcheck: 'false',
    oninput: draw, onfocus: () => { tables().then((all) => { names = all; draw() }).catch(() => {}); draw() }, onblur: () => { list.hidden = true; input.setAttribute('aria-expanded', 'false') },
    onkeydown: (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
      if (step && found.length) { event.preventDefault(); chosen = (chosen + step + found.length) % found.length; draw() }
      if (event.key === 'Escape') input.blur()
      if (event.key === 'Enter') { event.preventDefault(); if (found[chosen]) go(found[chosen].go); else if (input.value.trim()) toast('That is no offset, row, user, session or time') }
    } })
  return h('div.search', { role: 'search' }, input, h('kbd', { 'aria-hidden': 'true' }, '/'), list)
}

/**
 * The strip of time: changes a minute over the whole log, with its gaps and changes of the schema.
 * @param {Element} strip @param {any} source
 */
async function drawStrip(strip, source) {
  fill(strip, h('figcaption', h('span', 'Reading the log …')))
  try {
    const until = new AbortController().signal
    const start = await source.start(until)
    const [minutes, log] = await Promise.all([source.ask('stats', { by: 'minute', top: 1440, from: start }, until), source.ask('info', {}, until)])
    const info = log.records.find((one) => one.kind === 'log')
    const groups = minutes.records.filter((one) => one.kind === 'group' && one.from).sort((one, other) => (one.from < other.from ? -1 : 1))
    if (!info?.from || !groups.length) { fill(strip, h('figcaption', h('span', 'The log has no change yet.'))); return }
    const [from, to] = [micros(groups[0].from), Math.max(micros(info.to ?? groups.at(-1).from), micros(groups.at(-1).from) + 6e7)]
    const columns = 240
    const sums = new Array(columns).fill(0)
    const place = (time) => Math.min(columns - 1, Math.max(0, Math.floor(((time - from) / (to - from)) * columns)))
    for (const group of groups) sums[place(micros(group.from))] += group.changes
    const most = Math.max(...sums)
    const marks = h('g')
    const picture = h('svg', { viewBox: `0 0 ${columns} 44`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `Changes a minute, from ${moment(isoOf(from))} to ${moment(isoOf(to))} UTC; choose a part to see its changes`, onclick: (event) => {
      const box = picture.getBoundingClientRect()
      const part = Math.floor(((event.clientX - box.left) / box.width) * columns) / columns
      const time = from + part * (to - from)
      location.hash = writePlace('stream', [], { from: isoOf(time).slice(0, 19) + 'Z', to: isoOf(time + (to - from) / columns + 6e7).slice(0, 19) + 'Z' })
    } }, h('line', { x1: 0, x2: columns, y1: 43.5, y2: 43.5, stroke: 'var(--line)' }),
    sums.map((sum, index) => sum ? h('rect', { x: index + 0.1, width: 0.8, y: 43 - Math.max(2, (sum / most) * 40), height: Math.max(2, (sum / most) * 40), fill: 'var(--accent)', opacity: 0.75 }) : null), marks)
    const caption = h('figcaption', h('span', `${moment(isoOf(from)).slice(0, 16)} UTC`), h('span', `${number(groups.reduce((sum, one) => sum + one.changes, 0))} changes, at most ${number(Math.max(...groups.map((one) => one.changes)))} a minute`), h('span', `${moment(isoOf(to)).slice(0, 16)} UTC`))
    fill(strip, picture, caption)
    const notes = await source.ask('tail', { op: 'M', from: start, limit: 200 }, until)
    const ddl = notes.records.filter((one) => one.prefix === 'rt:ddl' || one.prefix === 'tidewire.mark')
    const gaps = minutes.records.filter((one) => one.kind === 'gap')
    const mark = (colour) => (one) => { const x = place(micros(one.time)) + 0.5; return h('line', { x1: x, x2: x, y1: 0, y2: 44, stroke: `var(--${colour})`, 'stroke-width': 0.6 }) }
    fill(marks, ddl.map(mark('denied')), gaps.map(mark('missed')))
    if (gaps.length) caption.append(h('span.missed', `✕ ${plural(gaps.length, 'gap')}`))
    if (ddl.length) caption.append(h('span.denied', `● ${plural(ddl.length, 'change')} of the schema, the last ${clock(ddl.at(-1).time).slice(0, 8)}`))
  } catch (error) {
    if (error instanceof AskError && error.kind === 'role') fill(strip, h('figcaption', h('span', 'Your role may not see this part of the log.')))
    else fill(strip, h('figcaption', h('span', `The strip of time could not be read: ${/** @type {Error} */ (error).message}`)))
  }
}

// Keys

/** @param {KeyboardEvent} event */
function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /** @type {Element} */ (event.target).closest('input, textarea, select, dialog')) return
  if (event.key === '/') { event.preventDefault(); document.getElementById('search')?.focus() }
  if (event.key === '?') showKeys()
  if (event.key === 'j' || event.key === 'k') {
    const list = /** @type {HTMLElement | null} */ (document.querySelector('.page .scroll'))
    if (list && document.activeElement !== list && !list.contains(document.activeElement)) { list.focus(); list.dispatchEvent(new KeyboardEvent('keydown', { key: event.key })) }
  }
  const number = Number(event.key)
  if (number >= 1 && number <= 9) location.hash = `#/${PAGES[number - 1][0]}`
}

function showKeys() {
  const dialog = h('dialog', { 'aria-label': 'Keys' }, h('h2', 'Keys'), h('dl.facts', [['/', 'search: @6, notes 1, xid:906, an LSN, a user, a session, -15m'], ['j k', 'next and previous line of the table'], ['Enter', 'open the line'], ['1 … 9', 'pages'], ['Space ← →', 'play and step the film'], ['?', 'this']].map(([key, text]) => [h('dt', h('kbd', key)), h('dd', text)])), h('p.second', 'Every page is an address: send it to a colleague. ', h('a', { href: '#/style', onclick: () => dialog.close() }, 'What the parts mean')), h('form', { method: 'dialog' }, h('button.first', 'Close')))
  document.body.append(dialog)
  dialog.addEventListener('close', () => dialog.remove())
  dialog.showModal()
}

// The beginning

showTheme()
const report = document.getElementById('report')
if (report) {
  const bytes = Uint8Array.from(atob(report.textContent ?? ''), (letter) => letter.charCodeAt(0))
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text()
  start({ data: JSON.parse(text) })
} else if (!isSecureContext) {
  // Browsers keep the cookie, and say where a request comes from, only there.
  fill(document.body, h('main.signin', h('h1', 'Tidewire'), h('div.state.bad', { role: 'alert' }, h('strong', 'Open the console over https, or on localhost'), h('p', 'Over plain http a browser keeps no sign-in, so the hub would answer nothing.'))))
} else {
  try {
    const session = await (await request('/console/session')).json()
    if (session.signed_in) start(session)
    else showSignIn()
  } catch (error) { fill(document.body, h('main.signin', h('h1', 'Tidewire'), failure(error, () => location.reload()))) }
}
