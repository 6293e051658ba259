import Diagnostics
import Ingest
import WebSocket

/// Erasure of a row's values from a log. A separate process finds the values and records what to erase. The hub then
/// erases it, because it owns the log. If the project does not run, the process does both.
struct ErasureRun {
    let run: QuestionRun
    /// Ingest service of the project; nil if the project does not run.
    let ingest: IngestService?

    func answer() -> HTTPResponse {
        guard let ingest else { return run.answer() }
        var answer: HTTPResponse?
        do {
            let outcome = try ingest.erase(in: run.place.log) { answer = run.with("--write-down").answer() }
            guard case .done = outcome, let answer else {
                return .message(
                    .serviceUnavailable,
                    "the hub does not come to it: it waits for its database or disk, or a large transaction is under way"
                )
            }
            return told(answer)
        } catch {
            Log.shared.error("cannot remove values from the event log", [.reason("\(error)")])
            return TenantsAPI.failed(
                answer == nil
                    ? "the values cannot be removed" : "the hub has noted the removal, and does it at its next start"
            )
        }
    }

    /// Returns the separate process's answer, changed to state that the erasure is complete.
    private func told(_ answer: HTTPResponse) -> HTTPResponse {
        guard answer.status == .ok else { return answer }
        var told = answer
        let text = String(decoding: answer.body, as: UTF8.self)
        told.body = Array(
            text.replacing(#""done":false}"#, with: #""done":\#(!text.contains(#""changes":0,"#))}"#)
                .replacing(": noted for the hub to do", with: ": done").utf8)
        return told
    }
}
