import Console
import System

/// A line that a person sees while something takes more than a second, and that is gone afterwards. It is written to a
/// screen on stderr only.
final class Progress {
    private let terminal: Terminal
    private let time: any TimeSource
    private let isShown: Bool
    private var next: UInt64
    private var isOnScreen = false

    private static let firstAfter: UInt64 = 1_000_000_000
    private static let interval: UInt64 = 250_000_000

    /// - Parameter sharesScreen: lines of the command's own come to the same screen meanwhile, if one is there.
    init(_ terminal: Terminal, isQuiet: Bool, sharesScreen: Bool = false) {
        self.terminal = terminal
        time = terminal.time
        isShown = terminal.hasErrorScreen && !isQuiet && !(sharesScreen && terminal.isInteractive)
        next = time.monotonicNanoseconds() + Self.firstAfter
    }

    /// May be called as often as one likes.
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
