import Synchronization

/// Log for the operators of the hub. Each call writes one line to stderr: a sentence and its `key=value` fields.
///
/// Each line is one `write(2)`, so that lines of several threads do not mix in a file or journal. The call blocks while
/// the reader of stderr does not read. Frequent events are therefore counted in metrics and not logged.
///
/// Row data is never logged. Fields can only be made from the keys in `LogKey`, and no key is for a row's value.
public final class Log: Sendable {
    public enum Level: String, CaseIterable, Sendable {
        /// Problem that an operator must solve.
        case error
        /// Problem that will become an error if it continues.
        case warning
        /// Event in the life of the hub: start, slot confirmed, segment completed, stop.
        case info
        /// Detail, about one line for each connection.
        case debug
    }

    public enum Format: String, CaseIterable, Sendable {
        case text, json
    }

    /// Receiver of finished lines, each of which ends in a newline.
    public typealias Sink = @Sendable (_ line: [UInt8]) -> Void

    /// Log of this process.
    public static let shared = Log()

    private let threshold: Atomic<UInt8>
    private let writesJSON: Atomic<Bool>
    private let usesColour: Bool
    private let now: @Sendable () -> WallTime
    private let sink: Sink

    public init(
        level: Level = .info,
        format: Format = .text,
        usesColour: Bool = StandardError.wantsColour,
        now: @escaping @Sendable () -> WallTime = { WallTime.now() },
        sink: @escaping Sink = StandardError.write
    ) {
        threshold = Atomic(level.severity)
        writesJSON = Atomic(format == .json)
        self.usesColour = usesColour
        self.now = now
        self.sink = sink
    }

    /// Sets the level and the format. Call this once, when the configuration is known. Until it returns, other threads
    /// may write lines in the old format.
    public func configure(level: Level, format: Format) {
        threshold.store(level.severity, ordering: .relaxed)
        writesJSON.store(format == .json, ordering: .relaxed)
    }

    public func isEnabled(_ level: Level) -> Bool {
        level.severity <= threshold.load(ordering: .relaxed)
    }

    public func error(_ sentence: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
        write(.error, sentence, fields)
    }

    public func warning(_ sentence: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
        write(.warning, sentence, fields)
    }

    public func info(_ sentence: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
        write(.info, sentence, fields)
    }

    public func debug(_ sentence: StaticString, _ fields: @autoclosure () -> [LogField] = []) {
        write(.debug, sentence, fields)
    }

    private func write(_ level: Level, _ sentence: StaticString, _ fields: () -> [LogField]) {
        guard isEnabled(level) else { return }
        var fields = fields()
        if let project = LogScope.currentProject, !fields.contains(where: { $0.key == LogField.project }) {
            fields.insert(.project(project), at: 0)
        }
        let line = LogLine(time: now(), level: level, sentence: sentence.description, fields: fields)
        sink(writesJSON.load(ordering: .relaxed) ? line.json() : line.text(coloured: usesColour))
    }
}

extension Log.Level {
    /// Rank of the level; a more severe level has a smaller rank. One comparison decides whether a line is written.
    fileprivate var severity: UInt8 {
        switch self {
        case .error: 0
        case .warning: 1
        case .info: 2
        case .debug: 3
        }
    }
}
