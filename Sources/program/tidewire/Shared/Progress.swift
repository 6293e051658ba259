import Console
import System

/// A line on the screen that shows the progress of a task which takes more than a second. It disappears afterwards. It
/// is written only to stderr, and only if that is a screen.
final class Progress {
    private let terminal: Terminal
    private let time: any TimeSource
    private let isShown: Bool
    private var next: UInt64
    private var isOnScreen = false

    private static let firstAfter: UInt64 = 1_000_000_000
    private static let interval: UInt64 = 250_000_000

    /// - Parameter sharesScreen: true if the command's own lines may appear on the same screen meanwhile.
    init(_ terminal: Terminal, isQuiet: Bool, sharesScreen: Bool = false) {
        self.terminal = terminal
        time = terminal.time
        isShown = terminal.hasErrorScreen && !isQuiet && !(sharesScreen && terminal.isInteractive)
        next = time.monotonicNanoseconds() + Self.firstAfter
    }

    /// Updates the line, at most once in each interval. The caller may call this at any rate.
    func note(_ text: @autoclosure () -> String) {
        guard isShown else { return }
        let now = time.monotonicNanoseconds()
        guard now >= next else { return }
        next = now + Self.interval
        isOnScreen = true
        terminal.complain(part: "\r\u{1b}[K" + text())
    }

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
