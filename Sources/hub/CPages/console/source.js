// @ts-check
// Where answers come from: the hub, a bundle's loopback server, or the report file itself.
import { keyText, tableName } from './words.js'

/** Failure of a question, with its kind: what the page shows depends on it. */
export class AskError extends Error {
  /** @param {'signed out' | 'role' | 'offline' | 'busy' | 'question' | 'nothing' | 'large' | 'cut' | 'hub'} kind @param {string} text @param {number} [retry] */
  constructor(kind, text, retry) {
    super(text)
    this.kind = kind
    this.retry = retry
  }
}

/** @param {Response} response @param {string} text */
function failureOf(response, text) {
  let said = text
  try { said = JSON.parse(text).message ?? JSON.parse(text).error ?? text } catch { /* a text that is not JSON is shown as it is */ }
  said = said.replace(/^tidewire [\w -]+: /, '').slice(0, 500)
  if (response.status === 401) return new AskError('signed out', said)
  if (response.status === 403) return new AskError('role', said)
  if (response.status === 404) return new AskError('nothing', said)
  if (response.status === 429 || response.status === 503) return new AskError('busy', said, Number(response.headers.get('retry-after') ?? 2))
  if (response.status === 413) return new AskError('large', said)
  if (response.status < 500) return new AskError('question', said)
  return new AskError('hub', said || `the hub answered ${response.status}`)
}

/**
 * Sends a request of the console.
 * @param {string} path @param {RequestInit} [options]
 */
export async function request(path, options = {}) {
  /** @type {Response} */
  let response
  try {
    response = await fetch(path, { credentials: 'same-origin', cache: 'no-store', ...options })
  } catch (error) {
    if (options.signal?.aborted) throw error
    throw new AskError('offline', 'the hub cannot be reached')
  }
  if (!response.ok) throw failureOf(response, await response.text())
  return response
}

/** @param {string} text @returns {{records: any[], isCut: boolean}} */
export function readLines(text) {
  const records = []
  const lines = text.split('\n')
  let isCut = false
  for (const [index, line] of lines.entries()) {
    if (!line) continue
    try { records.push(JSON.parse(line)) } catch {
      // A log, or a connection, that ends in the middle of a line: what is whole is shown, and that it is not all.
      if (index < lines.length - 1) throw new AskError('cut', 'the answer has a line that is not JSON')
      isCut = true
    }
  }
  return { records, isCut }
}

/**
 * Answer to a question: records, how long it took, and whether it is only a part.
 * @typedef {{records: any[], took: number, isCut: boolean, remarks: string}} Answer
 */

/** The hub, or the loopback server of a bundle. */
export class HubSource {
  /** @param {string} project */
  constructor(project, kind = 'hub') {
    this.project = project
    this.kind = kind
    /** @type {Map<string, {at: number, answer: Promise<Answer>}>} */
    this.kept = new Map()
    /** Column that an admin has unmasked, with the reason; until the page is loaded again. @type {{unmask?: string, because?: string}} */
    this.unmasked = {}
  }

  /**
   * Start of what a page reads unasked: of a small log everything, otherwise the last hour, so that a page is cheap.
   * @param {AbortSignal} [signal]
   */
  async start(signal) {
    const log = (await this.ask('info', {}, signal)).records.find((one) => one.kind === 'log')
    return (log?.changes ?? 0) > 200_000 ? '-1h' : 'oldest'
  }

  get root() { return `/console/api/tenants/${encodeURIComponent(this.project)}` }

  /**
   * Asks the log. Answers about the past do not change, so they are kept for a few seconds.
   * @param {string} command @param {Record<string, any>} params @param {AbortSignal} [signal] @returns {Promise<Answer>}
   */
  ask(command, params, signal) {
    const items = Object.entries(['tail', 'event', 'tx', 'row'].includes(command) ? { ...params, ...this.unmasked } : params).flatMap(([name, value]) => [value].flat().filter((one) => one !== '' && one != null && one !== false).map((one) => [name, String(one)]))
    if (command === 'info') items.push(['unchecked', 'true'])
    const query = new URLSearchParams([...items, ['json', 'true']]).toString()
    const name = `${command}?${query}`
    const kept = this.kept.get(name)
    if (kept && Date.now() - kept.at < 15_000) return kept.answer
    const began = performance.now()
    const answer = (async () => {
      const response = await request(`${this.root}/log/${command}?${query}&parts=true`, { signal })
      const read = readLines(await this.whole(response, signal))
      const remarks = decodeURIComponent(response.headers.get('tidewire-remarks') ?? '')
      // The command's exit code: 1 is that nothing was found, higher ones are failures.
      if (Number(response.headers.get('tidewire-exit-code') ?? 0) > 1) {
        if (!read.records.length) throw new AskError('cut', remarks || 'the command failed')
        read.isCut = true
      }
      return { ...read, took: performance.now() - began, remarks }
    })()
    if (this.kept.size > 60) this.kept.clear()
    this.kept.set(name, { at: Date.now(), answer })
    answer.catch(() => this.kept.delete(name))
    return answer
  }

  /**
   * Text of an answer. The hub keeps one that is too large for a response, and gives it in parts.
   * @param {Response} response @param {AbortSignal} [signal]
   */
  async whole(response, signal) {
    const [name, size] = [response.headers.get('tidewire-answer'), Number(response.headers.get('tidewire-answer-bytes'))]
    const first = await response.arrayBuffer()
    const parts = [first]
    for (let from = first.byteLength; name && from < size; from += parts.at(-1)?.byteLength ?? 0) {
      parts.push(await (await request(`${this.root}/log/part?name=${name}&from=${from}`, { signal })).arrayBuffer())
      if (!parts.at(-1)?.byteLength) throw new AskError('cut', 'the hub no longer has the rest of the answer')
    }
    return new TextDecoder().decode(await new Blob(parts).arrayBuffer())
  }

  /**
   * Asks several questions in one request; one by one, if their answers are too large together.
   * @param {[string, Record<string, any>][]} questions @param {AbortSignal} [signal] @returns {Promise<(Answer | AskError)[]>}
   */
  async askAll(questions, signal) {
    /** @type {(Answer | AskError)[]} */
    const answers = []
    for (let start = 0; start < questions.length; start += 20) {
      const began = performance.now()
      const body = JSON.stringify({ questions: questions.slice(start, start + 20).map(([command, params]) => ({ command, ...params, json: true })) })
      /** @type {Response} */
      let response
      try {
        response = await request(`${this.root}/log`, { method: 'POST', body, headers: { 'content-type': 'application/json' }, signal })
      } catch (error) {
        if (!(error instanceof AskError) || error.kind !== 'large') throw error
        for (const [command, params] of questions.slice(start, start + 20)) answers.push(await this.ask(command, params, signal).catch((failed) => failed))
        continue
      }
      for (const one of readLines(await response.text()).records) {
        if (one.exit_code > 1) answers.push(new AskError('question', String(one.remarks).slice(0, 500)))
        else answers.push({ ...readLines(one.output), took: performance.now() - began, remarks: one.remarks })
      }
    }
    return answers
  }

  /** @param {string} what @param {AbortSignal} [signal] */
  async get(what, signal) {
    return (await request(`${this.root}/${what}`, { signal })).json()
  }

  /** @param {string} method @param {string} what @param {any} body */
  send(method, what, body) {
    return request(`${this.root}/${what}`, { method, headers: { 'content-type': 'application/json' }, body: body === undefined ? undefined : JSON.stringify(body) })
  }

  /**
   * Follows the log until the signal, and passes on each batch of records.
   * @param {Record<string, any>} params @param {AbortSignal} signal @param {(records: any[]) => void} take
   */
  async follow(params, signal, take) {
    const given = Object.entries(params).filter(([, value]) => value !== '' && value != null)
    const response = await request(`${this.root}/log/follow?${new URLSearchParams(/** @type {any} */ (given))}`, { signal })
    const reader = /** @type {ReadableStream<any>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader()
    let rest = ''
    while (true) {
      const { value, done } = await reader.read()
      if (done) return
      const end = value.lastIndexOf('\n')
      if (end < 0) { rest += value; continue }
      const { records } = readLines(rest + value.slice(0, end + 1))
      rest = value.slice(end + 1)
      if (records.length) take(records)
    }
  }
}

/** A report: everything that it can answer was asked when it was made. */
export class FileSource {
  /** @param {any} data */
  constructor(data) {
    this.project = data.project
    this.kind = 'file'
    this.data = data
  }

  start() { return Promise.resolve('oldest') }

  /** @param {string} command @param {Record<string, any>} params @returns {Promise<Answer>} */
  async ask(command, params) {
    const records = this.answer(command, params)
    if (!records) throw new AskError('nothing', 'this report was made without the answer to this question')
    return { records, took: 0, isCut: false, remarks: '' }
  }

  /** @param {[string, Record<string, any>][]} questions @returns {Promise<(Answer | AskError)[]>} */
  askAll(questions) {
    return Promise.all(questions.map(([command, params]) => this.ask(command, params).catch((error) => error)))
  }

  /** @param {string} command @param {Record<string, any>} params @returns {any[] | null} */
  answer(command, params) {
    const { changes, ledger, who, why, policies, info, stats } = this.data
    const offset = String(params.offset ?? '').replace(/^@/, '')
    const name = (text) => (text ?? '').replace(/^public\./, '')
    const within = (record) => isWithin(record, params.from, params.to)
    if (command === 'tail') {
      const ops = params.op ? String(params.op).toUpperCase().split(',') : null
      const found = changes.filter((change) => within(change) && (!params.table || tableName(change) === name(params.table)) && (!ops || ops.some((op) => change.op.startsWith(op))))
      return params.limit ? (params.from ? found.slice(0, params.limit) : found.slice(-params.limit)) : found
    }
    if (command === 'event') return changes.filter((change) => String(change.offset) === offset)
    if (command === 'tx') return changes.filter((change) => String(change.xid) === String(params.xid) || change.lsn === params.xid)
    if (command === 'row') return changes.filter((change) => tableName(change) === name(params.table) && keyText(change.key) === [params.key].flat().join(','))
    if (command === 'who') return who[offset] ?? null
    if (command === 'why') return why[`${offset} ${params.sub}`] ?? null
    if (command === 'user') return ledger.filter((event) => event.user === params.sub || sessionsOf(ledger, params.sub).has(event.session))
    if (command === 'session') return ledger.filter((event) => within(event) && (!params.session || event.session === params.session))
    if (command === 'policies') return policies
    if (command === 'info') return info
    if (command === 'stats') return params.by === 'minute' ? minutesOf(changes) : stats
    return null
  }

  /** @param {string} what @returns {Promise<any>} */
  async get(what) {
    throw new AskError('nothing', `a report has no ${what}: that is known only to a running hub`)
  }

  /** @returns {Promise<any>} */
  async send() { throw new AskError('nothing', 'a report can only be read') }

  /** @returns {Promise<any>} */
  async follow() { throw new AskError('nothing', 'a report does not go on') }
}

/** @param {any[]} ledger @param {string} user */
function sessionsOf(ledger, user) {
  return new Set(ledger.filter((event) => event.user === user).map((event) => event.session))
}

/** @param {any} record @param {string | undefined} from @param {string | undefined} to */
function isWithin(record, from, to) {
  const before = (edge) => (edge.startsWith('@') ? record.offset < Number(edge.slice(1)) : /^\d{4}/.test(edge) ? record.time < edge : false)
  return !(from && before(from)) && !(to && !before(to) && (to.startsWith('@') || /^\d{4}/.test(to)))
}

/** @param {any[]} changes */
function minutesOf(changes) {
  /** @type {Map<string, number>} */
  const minutes = new Map()
  for (const change of changes) {
    const minute = change.time.slice(0, 16) + ':00.000000Z'
    minutes.set(minute, (minutes.get(minute) ?? 0) + 1)
  }
  return [...minutes].map(([from, count]) => ({ kind: 'group', from, changes: count }))
}
