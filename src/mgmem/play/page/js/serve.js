// What every worker does with its messages: a request of some kind in, a result or an error out.

export function serve(answers) {
  self.addEventListener("message", ({ data: { id, kind, request } }) => {
    try {
      self.postMessage({ id, result: answers[kind](request) });
    } catch (error) {
      self.postMessage({ id, error: String(error) });
    }
  });
}
