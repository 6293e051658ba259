// @ts-check
// Elements without a framework. Nothing here parses HTML: a text stays a text.

const SVG_NAMES = new Set(['svg', 'path', 'g', 'line', 'rect', 'circle', 'text', 'title'])

/**
 * Makes an element: `h('p.second', 'a text')`, `h('a', { href }, 'a link')`. A property that begins with `on` is a
 * listener; `style` is an object.
 * @param {string} name tag, and classes after dots @param {...any} rest properties, if they are given, and children
 * @returns {any}
 */
export function h(name, ...rest) {
  const [path, ...classes] = name.split('.')
  const tag = path.replace('svg:', '')
  const props = isProperties(rest[0]) ? rest.shift() : {}
  const element = path !== tag || SVG_NAMES.has(tag) ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag)
  if (classes.length) element.setAttribute('class', classes.join(' '))
  for (const [key, value] of Object.entries(props)) {
    if (value == null || value === false) continue
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value)
    else if (key === 'style') for (const [one, text] of Object.entries(value)) element.style.setProperty(one, String(text))
    else if (key === 'value') /** @type {any} */ (element).value = value
    else if (key !== 'href' || safeAddress(String(value))) element.setAttribute(key, value === true ? '' : String(value))
  }
  element.append(...pieces(rest))
  return element
}

/** @param {any} value */
function isProperties(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value) && !(value instanceof Node)
}

/** Only addresses in the console itself, files that it makes, and pages of the web: no script. @param {string} address */
export function safeAddress(address) {
  return /^(#|blob:|https?:\/\/|[\w-]+\/)/.test(address)
}

/** @param {any[]} children @returns {(Node | string)[]} */
export function pieces(children) {
  return children.flat(9).filter((child) => child != null && child !== false).map((child) => (child instanceof Node ? child : String(child)))
}

/** Replaces what an element has. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  element.replaceChildren(...pieces(children))
  return element
}

/** Runs a function once a frame at most, however often it is asked for. @param {() => void} work */
export function eachFrame(work) {
  let isAsked = false
  return () => {
    if (isAsked) return
    isAsked = true
    requestAnimationFrame(() => { isAsked = false; work() })
  }
}

/** Writes a text to the clipboard, also where the browser has no API for that. @param {string} text */
export async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    const area = h('textarea', { class: 'hidden', value: text, 'aria-hidden': 'true' })
    document.body.append(area)
    area.select()
    document.execCommand('copy')
    area.remove()
  }
  toast('Copied')
}

/** @param {string} text */
export function toast(text) {
  document.querySelector('.toast')?.remove()
  const box = h('div', { class: 'toast', role: 'status' }, text)
  document.body.append(box)
  setTimeout(() => box.remove(), 1600)
}
