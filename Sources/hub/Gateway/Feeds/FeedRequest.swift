import Diagnostics
import EventLog
import Protocol
import Settings
import WebSocket

/// HTTP request for changes, parsed from its URL and headers: tables, start position and form of the answer.
struct FeedRequest: Equatable {
    let bindings: [BindingParameters]
    /// Position after which changes begin; nil for the log's end.
    let after: EventLogPosition?
    /// Maximum number of changes to send; nil for no limit.
    let limit: UInt64?
    /// True if the feed waits for new changes at the log's end.
    let isLive: Bool
    let form: FeedForm
}

extension FeedRequest {
    private static let names = [
        "table", "schema", "event", "filter", "select", "after", "limit", "live", "moves", "snapshot", "apikey",
        "access_token",
    ]

    init(_ request: HTTPRequest) throws(FeedRefusal) {
        guard let format = FeedForm.Format(accept: request.header("accept")) else { throw .notAcceptable }
        form = FeedForm(format, request.version == .http11 ? .chunks : .untilClose)
        var reader = Reader()
        for item in request.queryItems { try reader.read(item) }
        // A client that lost its stream repeats the original URL, so that this header replaces `after`.
        if let last = request.header("last-event-id"), !last.isEmpty { try reader.readPosition(last, "Last-Event-ID") }
        bindings = try reader.finishedBindings(for: format)
        after = reader.after
        isLive = reader.isLive ?? (format == .events)
        limit = try reader.limit(of: format)
        assert(format != .page || limit != nil, "a page has an end")
    }

    /// Parser of the parameters in their order. A parameter after a `table` applies to that table. A parameter before
    /// the first `table` applies to all tables.
    private struct Reader {
        var after: EventLogPosition?
        var isLive: Bool?
        private var limit: UInt64?
        private var moves: Bool?
        private var snapshot: Bool?
        private var common = BindingParameters(event: .all, schema: "public", table: "")
        private var bindings: [BindingParameters] = []

        mutating func read(_ item: HTTPQueryItem) throws(FeedRefusal) {
            switch item.name {
            case "table": try begin(item.value)
            case "schema", "event", "filter", "select":
                if bindings.isEmpty {
                    try Self.set(item, in: &common)
                } else {
                    try Self.set(item, in: &bindings[bindings.count - 1])
                }
            case "after": try readPosition(item.value, "after")
            case "limit": try readLimit(item.value)
            case "live": isLive = try Self.boolean(item)
            case "moves", "tidewire.moves": moves = try Self.boolean(item)
            case "snapshot": snapshot = try Self.boolean(item)
            case "apikey", "access_token": break
            default: throw .unknownParameter(item.name, nearest: NearestName.to(item.name, among: FeedRequest.names))
            }
        }

        private mutating func begin(_ table: String) throws(FeedRefusal) {
            guard !table.isEmpty else { throw .parameter("table", "it names no table; * means all of the schema") }
            guard bindings.count < Limits.maximumBindingsPerChannel else {
                throw .parameter("table", "there may be \(Limits.maximumBindingsPerChannel) in a request")
            }
            var next = common
            next.table = table
            bindings.append(next)
        }

        private static func set(
            _ item: HTTPQueryItem, in binding: inout BindingParameters
        ) throws(FeedRefusal) {
            switch item.name {
            case "schema":
                guard !item.value.isEmpty else { throw .parameter("schema", "it names no schema") }
                binding.schema = item.value
            case "event": binding.event = try event(item.value)
            case "filter": binding.filter = item.value.isEmpty ? nil : item.value
            default:
                binding.select = item.value.split(separator: ",").map { HTTPListItem.trimmed($0) }.filter {
                    !$0.isEmpty
                }
            }
        }

        private static func event(_ name: String) throws(FeedRefusal) -> BindingEvent {
            switch name.uppercased() {
            case "*": return .all
            case "INSERT": return .insert
            case "UPDATE": return .update
            case "DELETE": return .delete
            default: throw .parameter("event", "there are INSERT, UPDATE, DELETE and *")
            }
        }

        mutating func readPosition(_ text: String, _ name: String) throws(FeedRefusal) {
            guard let position = EventLogPosition(text) else {
                throw .parameter(name, "a position reads epoch.offset, as it was told")
            }
            after = position
        }

        private mutating func readLimit(_ text: String) throws(FeedRefusal) {
            guard let number = UInt64(text), number > 0 else { throw .parameter("limit", "it is a number from 1") }
            limit = number
        }

        func limit(of format: FeedForm.Format) throws(FeedRefusal) -> UInt64? {
            guard format == .page else { return limit }
            let limit = limit ?? Limits.feedPageChanges
            guard limit <= Limits.maximumFeedPageChanges else {
                throw .parameter("limit", "a page has at most \(Limits.maximumFeedPageChanges) changes")
            }
            return limit
        }

        private static func boolean(_ item: HTTPQueryItem) throws(FeedRefusal) -> Bool {
            switch item.value.lowercased() {
            case "true", "1": return true
            case "false", "0": return false
            default: throw .parameter(item.name, "it is true or false")
            }
        }

        func finishedBindings(for format: FeedForm.Format) throws(FeedRefusal) -> [BindingParameters] {
            guard !bindings.isEmpty else { throw .parameter("table", "name at least one; * means all of the schema") }
            if snapshot == true, format == .page {
                throw .parameter("snapshot", "rows go into streams: Accept application/x-ndjson or text/event-stream")
            }
            var all = bindings
            for index in all.indices {
                all[index].options[.moves] = moves
                all[index].options[.snapshot] = snapshot
                if all[index].hasWildcard, !all[index].select.isEmpty {
                    throw .parameter("select", BindingError.selectWithWildcard.message)
                }
            }
            return all
        }
    }
}

private enum HTTPListItem {
    static func trimmed(_ text: Substring) -> String {
        String(text.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }
}

extension FeedForm.Format {
    /// Creates the format that an Accept header prefers (RFC 9110 §12.5.1). Returns nil if the header allows none.
    init?(accept: String?) {
        guard let accept, !accept.allSatisfy(\.isWhitespace) else {
            self = .page
            return
        }
        var best: (format: Self, weight: Double)?
        for range in accept.split(separator: ",") {
            let parts = range.split(separator: ";").map { $0.filter { !$0.isWhitespace }.lowercased() }
            guard let type = parts.first, let format = Self(type: type) else { continue }
            let weight = parts.dropFirst().first { $0.hasPrefix("q=") }.flatMap { Double($0.dropFirst(2)) } ?? 1
            // The first of several formats with equal weight wins.
            if weight > best?.weight ?? 0 { best = (format, weight) }
        }
        guard let best else { return nil }
        self = best.format
    }

    private init?(type: String) {
        switch type {
        case "*/*", "application/*", "application/json": self = .page
        case "application/x-ndjson", "application/ndjson", "application/jsonl": self = .lines
        case "text/event-stream", "text/*": self = .events
        default: return nil
        }
    }

    var contentType: String {
        switch self {
        case .page: HTTPResponse.jsonContentType
        case .lines: "application/x-ndjson; charset=utf-8"
        case .events: "text/event-stream; charset=utf-8"
        }
    }
}

extension JoinRequest {
    /// Creates the request to join a channel with the feed's bindings.
    init(_ feed: FeedRequest) { self.init(feed: feed.bindings) }
}
