import Synchronization

/// What the hub says to the humans who run it: a sentence and its `key=value` fields in, one line on stderr out.
///
/// A line is written by one `write(2)`, so that lines of several threads do not mix in a file or journal. It blocks when
/// the reader of stderr does not read; that is why things that happen often are counters in `Metrics` and not lines.
///
/// Row data is never logged: fields can only be made from the keys in `LogKey`, and there is no key for a value.
public final class Log: Sendable {
    public enum Level: String, CaseIterable, Sendable {
        /// An operator must act.
        case error
        /// Will be an error if it goes on.
        case warning
        /// A life event: start, slot confirmed, segment rolled, stop.
        case info
        /// About one line for each connection.
        case debug
    }

    public enum Format: String, CaseIterable, Sendable {
        case text, json
    }

    /// Where finished lines go, each ending in a newline.
    public typealias Sink = @Sendable (_ line: [UInt8]) -> Void

    /// The log of this process.
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

    /// Sets level and format, once, when the configuration is known. Lines of other threads may still be written in the
    /// old format while this runs.
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
    /// Smaller is worse, so that one comparison decides whether a line is written.
    fileprivate var severity: UInt8 {
        switch self {
        case .error: 0
        case .warning: 1
        case .info: 2
        case .debug: 3
        }
    }
}
