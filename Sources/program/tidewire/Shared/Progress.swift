import Console
import System

/// Line on the screen that shows the progress of a task once it takes more than a second. The line is written to stderr
/// only, and only if that is a terminal.
final class Progress {
    private let terminal: Terminal
    private let time: any TimeSource
    private let isShown: Bool
    private var next: UInt64
    private var isOnScreen = false

    private static let firstAfter: UInt64 = 1_000_000_000
    private static let interval: UInt64 = 250_000_000

    /// Creates the line, without showing it yet.
    /// - Parameter sharesScreen: true if the command prints its own output during the task. On a terminal, the progress
    ///   is not shown then.
    init(_ terminal: Terminal, isQuiet: Bool, sharesScreen: Bool = false) {
        self.terminal = terminal
        time = terminal.time
        isShown = terminal.hasErrorScreen && !isQuiet && !(sharesScreen && terminal.isInteractive)
        next = time.monotonicNanoseconds() + Self.firstAfter
    }

    /// Shows the text as the present progress. The function does nothing if the last text is less than a quarter of a
    /// second old, so callers may call it at any rate.
    func note(_ text: @autoclosure () -> String) {
        guard isShown else { return }
        let now = time.monotonicNanoseconds()
        guard now >= next else { return }
        next = now + Self.interval
        isOnScreen = true
        terminal.complain(part: "\r\u{1b}[K" + text())
    }

    /// Removes the line from the screen.
    func clear() {
        guard isOnScreen else { return }
        isOnScreen = false
        terminal.complain(part: "\r\u{1b}[K")
    }

    static func percent(_ done: UInt64, of all: UInt64) -> String {
        all == 0 ? "100 %" : "\(Int(Double(min(done, all)) / Double(all) * 100)) %"
    }
}

extension Option {
    static let withoutProgress = Option.flag("quiet", short: "q", "Show no progress.")
}
