/* SPDX-License-Identifier: MIT */
/*
 * Sends the request of every target in each way that a page has, and reports what the page could see of the answers.
 *
 *     /page.html?server=ORIGIN&report=URL     every way, to a server of another origin
 *     ...&rebound                             by fetch, to the own origin, which has become permitd
 *
 * A target is {method, path, body}; body null: none.
 */
const asked = new URL(location).searchParams;
const server = asked.get('server');
const seen = [];
let tried = 0;

function see(way, target, what) {
  seen.push({way, method: target.method, path: target.path, what});
}

/* Reports all that a page can learn of an answer to fetch. An opaque one has no status, no headers and no body. */
async function look(way, target, answer) {
  const text = await answer.text();
  if (answer.type !== 'opaque' || answer.status !== 0 || text !== '' || [...answer.headers].length > 0)
    see(way, target, `${answer.status} ${text}`);
}

/* A refusal of the browser is what the page should see. */
function fetching(way, target, options) {
  return fetch(server + target.path, options).then(answer => look(way, target, answer)).catch(() => {});
}

/* A frame that a form will fill begins with an empty document, which a page can read. */
const isEmpty = node => node.contentDocument?.URL === 'about:blank';

/* Adds an element that loads something. Resolves when the browser has finished with it. */
function loading(element, attributes, done = () => {}) {
  return new Promise(resolve => {
    const node = Object.assign(document.createElement(element), attributes);
    const end = event => {
      if (event.type === 'load' && attributes.name && isEmpty(node))
        return;
      done(node, event);
      node.remove();
      resolve();
    };
    for (const event of ['load', 'error', 'loadedmetadata'])
      node.addEventListener(event, end);
    document.body.append(node);
  });
}

/* A frame can be loaded by every page. Only its content must not be readable. */
function readFrame(way, target) {
  return (frame, event) => {
    try {
      if (event.type === 'load' && frame.contentDocument)
        see(way, target, frame.contentDocument.documentElement.outerHTML);
    } catch {}
  };
}

let frames = 0;
function submitting(way, target, action, attributes, fields) {
  const name = `frame${frames++}`;
  const sent = loading('iframe', {name}, readFrame(way, target));
  const form = Object.assign(document.createElement('form'), {action, target: name, ...attributes});
  for (const [field, value] of fields)
    form.append(Object.assign(document.createElement('input'), {type: 'hidden', name: field, value}));
  document.body.append(form);
  form.submit();
  form.remove();
  return sent;
}

/* The ways. Each sends `body` as it can, and with a method that it can send. */
const json = {'Content-Type': 'application/json'};
const isGet = target => target.method === 'GET';
const content = target => isGet(target) ? undefined : target.body ?? undefined;
/* A form of type text/plain sends NAME=VALUE: with these two, the body is JSON if it is an object. */
const asJson = body => [[body ? body.replace(/}$/, ',"x":"') : '{"x":"', '"}']];

const ways = {
  cors: (target, way) => fetching(way, target, {method: target.method, body: content(target), headers: content(target) && json}),
  corsWithCredentials: (target, way) => fetching(way, target, {method: target.method, body: content(target), credentials: 'include'}),
  corsSimple: (target, way) => fetching(way, target, {method: isGet(target) ? 'GET' : 'POST', body: content(target)}),
  noCors: (target, way) => fetching(way, target, {mode: 'no-cors', method: isGet(target) ? 'GET' : 'POST', body: content(target)}),
  noCorsMethod: (target, way) => fetching(way, target, {mode: 'no-cors', method: target.method, body: content(target), headers: json}),
  noReferrer: (target, way) => fetching(way, target, {mode: 'no-cors', referrerPolicy: 'no-referrer', method: isGet(target) ? 'GET' : 'POST', body: content(target)}),
  keepalive: (target, way) => fetching(way, target, {mode: 'no-cors', keepalive: true, method: isGet(target) ? 'GET' : 'POST', body: content(target)}),
  sameOrigin: (target, way) => fetching(way, target, {mode: 'same-origin', method: target.method, body: content(target)}),
  redirected: (target, way) => fetch('/redirect?' + server + target.path, {mode: 'no-cors', method: isGet(target) ? 'GET' : 'POST', body: content(target)})
      .then(answer => look(way, target, answer)).catch(() => {}),
  xhr: (target, way) => new Promise(resolve => {
    const request = new XMLHttpRequest();
    request.open(target.method, server + target.path);
    request.onload = () => see(way, target, `${request.status} ${request.responseText}`);
    request.onloadend = resolve;
    request.send(content(target));
  }),
  beacon: async target => navigator.sendBeacon(server + target.path, target.body ?? ''),
  formGet: (target, way) => submitting(way, target, server + target.path, {method: 'get'}, [['reason', 'a page']]),
  formPost: (target, way) => submitting(way, target, server + target.path, {method: 'post'}, []),
  formText: (target, way) => submitting(way, target, server + target.path, {method: 'post', enctype: 'text/plain'}, asJson(target.body)),
  formMultipart: (target, way) => submitting(way, target, server + target.path, {method: 'post', enctype: 'multipart/form-data'}, [['reason', 'a page']]),
  formRedirected: (target, way) => submitting(way, target, '/redirect?' + server + target.path, {method: 'post', enctype: 'text/plain'}, asJson(target.body)),
  image: (target, way) => loading('img', {src: server + target.path}, (_, event) => event.type === 'load' && see(way, target, 'an image')),
  script: (target, way) => loading('script', {src: server + target.path}, (_, event) => event.type === 'load' && see(way, target, 'a script')),
  style: (target, way) => loading('link', {rel: 'stylesheet', href: server + target.path}, (_, event) => event.type === 'load' && see(way, target, 'a style')),
  video: (target, way) => loading('video', {src: server + target.path, preload: 'auto'}, (_, event) => event.type !== 'error' && see(way, target, 'a video')),
  frame: (target, way) => loading('iframe', {src: server + target.path}, readFrame(way, target)),
  sandbox: (target, way) => loading('iframe', {sandbox: 'allow-scripts', srcdoc: `<img src="${server + target.path}">`}),
  object: (target, way) => loading('object', {data: server + target.path}, readFrame(way, target)),
  events: (target, way) => new Promise(resolve => {
    const source = new EventSource(server + target.path);
    source.onopen = source.onmessage = () => see(way, target, 'an event stream');
    source.onerror = () => {
      source.close();
      resolve();
    };
  }),
  socket: (target, way) => new Promise(resolve => {
    const socket = new WebSocket(server.replace('http', 'ws') + target.path);
    socket.onopen = () => see(way, target, 'a socket');
    socket.onclose = resolve;
  }),
};

async function tryAll() {
  const targets = await (await fetch('/targets')).json();
  const chosen = asked.has('rebound') ? {cors: ways.cors} : ways;
  if (asked.has('rebound'))
    await fetch('/rebound');
  for (const target of targets) {
    performance.clearResourceTimings();
    await Promise.all(Object.entries(chosen).map(([way, attempt]) => (tried++, attempt(target, way))));
    for (const entry of performance.getEntriesByType('resource'))
      if (!asked.has('rebound') && entry.name.startsWith(server) && (entry.responseStatus || entry.encodedBodySize || entry.decodedBodySize))
        see('timing', target, `${entry.responseStatus} ${entry.encodedBodySize}`);
  }
}

tryAll().catch(error => see('page', {}, String(error)))
    .then(() => fetch(asked.get('report'), {method: 'POST', mode: 'no-cors', body: JSON.stringify({tried, ways: Object.keys(ways), seen})}));
