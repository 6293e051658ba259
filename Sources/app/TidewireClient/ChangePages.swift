import Foundation

extension Tidewire {
    /// Returns the changes since a position in one answer over HTTP, without a subscription: for a widget, a background
    /// refresh, or a short-lived extension.
    ///
    /// ```swift
    /// var page = TableBatch()
    /// repeat {
    ///     page = try await tidewire.fetchChanges(after: store.position, of: [TableBinding(table: "reminders")])
    ///     try store.save(page.changes, at: page.position)
    /// } while page.hasMore
    /// ```
    ///
    /// - Parameters:
    ///   - position: position that the app saved last; nil to get the present end of the log, and no changes.
    ///   - tables: tables to ask for, with their filters.
    ///   - limit: maximum number of changes, up to 10,000. If `hasMore` is true, the next call with the answer's
    ///     `position` returns further changes.
    /// - Throws: a ``TidewireProblem`` with the server's code, or with the code `Unreachable`. Changes that the server
    ///   can no longer send are not an error: the answer's `refetchReason` then gives the reason, and its `position`
    ///   the place to resume from.
    public func fetchChanges(
        after position: LogPosition?, of tables: [TableBinding], limit: Int = 1000
    ) async throws -> TableBatch {
        let request = ChangesRequest(engine.address.url, tables, position, limit, token: engine.account.token)
        let answer: TransportAnswer
        do {
            answer = try await engine.transport.get(request.request)
        } catch let interruption as Tidewire.Interruption {
            throw TidewireProblem(code: "Unreachable", message: "\(interruption)", severity: .error)
        }
        return try ChangesAnswer(answer).batch
    }

    /// Returns the changes of one table since a position, as rows of the app's type, in one answer over HTTP.
    ///
    /// - Parameters:
    ///   - position: position that the app saved last; nil to get the present end of the log, and no changes.
    ///   - row: type of the rows.
    ///   - table: name of the table, if it differs from the row type's own.
    ///   - filter: condition on the rows; the server evaluates it.
    ///   - limit: maximum number of changes, up to 10,000. If `hasMore` is true, the next call with the answer's
    ///     `position` returns further changes.
    /// - Throws: a ``TidewireProblem`` with the server's code, or with the code `Unreachable`.
    public func fetchChanges<Row: LiveRow>(
        after position: LogPosition?, of row: Row.Type, table: String? = nil, where filter: LiveFilter<Row>? = nil,
        limit: Int = 1000
    ) async throws -> LiveBatch<Row> {
        let binding = TableBinding(schema: Row.schema, table: table ?? Row.table, filter: filter?.text)
        var reader = RowReader<Row>()
        return reader.batch(try await fetchChanges(after: position, of: [binding], limit: limit))
    }
}

struct ChangesRequest {
    let request: TransportRequest

    /// Builds the request. `socket` is the URL of the hub's WebSocket, from which the request's URL is made.
    init(_ socket: URL, _ tables: [TableBinding], _ position: LogPosition?, _ limit: Int, token: String?) {
        var items: [URLQueryItem] = []
        for table in tables {
            items.append(URLQueryItem(name: "table", value: table.table))
            items.append(URLQueryItem(name: "schema", value: table.schema))
            if let filter = table.filter { items.append(URLQueryItem(name: "filter", value: filter)) }
            if let select = table.select {
                items.append(URLQueryItem(name: "select", value: select.joined(separator: ",")))
            }
        }
        items.append(URLQueryItem(name: "moves", value: "true"))
        items.append(URLQueryItem(name: "limit", value: String(limit)))
        if let position { items.append(URLQueryItem(name: "after", value: position.description)) }
        var parts = URLComponents(url: socket, resolvingAgainstBaseURL: true) ?? URLComponents()
        let key = parts.queryItems?.first { $0.name == "apikey" }?.value
        items.append(URLQueryItem(name: "apikey", value: key))
        parts.scheme = parts.scheme == "wss" ? "https" : "http"
        let base = ["/socket/websocket", "/websocket"].first { parts.path.hasSuffix($0) } ?? ""
        parts.path = parts.path.dropLast(base.count) + "/api/changes"
        parts.queryItems = items
        // Servers read a plus sign as a space, but URLComponents does not escape it.
        parts.percentEncodedQuery = parts.percentEncodedQuery?.replacing("+", with: "%2B")
        let headers = token.map { ["Authorization": "Bearer " + $0] } ?? [:]
        request = TransportRequest(url: parts.url ?? socket, headers: headers)
    }
}

struct ChangesAnswer {
    let batch: TableBatch

    init(_ answer: TransportAnswer) throws {
        var said = PreviousColumns()
        guard let body = try? JSONValue(parsing: answer.body, &said), body.object != nil else {
            throw TidewireProblem(
                code: "NotAnswered", message: "the server answered with \(answer.status) and no JSON", severity: .error)
        }
        var batch = TableBatch()
        batch.position = body["position"]?.text.flatMap { LogPosition($0) }
        switch answer.status {
        case 200: try Self.read(body, into: &batch)
        case 409: batch.refetchReason = RefetchReason(serverReason: body["reason"]?.text)
        default:
            throw TidewireProblem(
                code: body["code"]?.text ?? "NotAnswered",
                message: body["error"]?.text ?? "the server answered with \(answer.status)", severity: .error)
        }
        self.batch = batch
    }

    private static func read(_ body: JSONValue, into batch: inout TableBatch) throws {
        batch.hasMore = body["more"]?.bool == true
        var lastColumns = RowChange.LastColumns()
        for event in body["events"]?.array ?? [] {
            let position = event["position"]?.text.flatMap { LogPosition($0) }
            guard let change = RowChange(event["data"] ?? .null, position: position, &lastColumns) else {
                throw TidewireProblem(
                    code: "Undecodable", message: "the server sent a change in a form that is not known",
                    severity: .error)
            }
            batch.changes.append(change)
        }
        for note in body["system"]?.array ?? [] {
            let message = note["message"]?.text ?? ""
            switch note["code"]?.text {
            case nil, "CaughtUp": break
            case "ChangesMissing": batch.refetchReason = .changesMissing(message)
            case "Truncated": batch.refetchReason = .truncated
            case let code?:
                let isError = note["status"]?.text == "error"
                batch.problems.append(
                    TidewireProblem(code: code, message: message, severity: isError ? .error : .warning))
            }
        }
        batch.isCaughtUp = !batch.hasMore
    }
}
