import Catalog
@_spi(Judging) import History
import Protocol

/// What somebody asks to be told of a table.
public struct AskedBinding: Sendable, Hashable {
    public var operations: RowOperations
    /// As clients write it; nil is every row.
    public var filter: String?

    public init(operations: RowOperations = .all, filter: String? = nil) {
        self.operations = operations
        self.filter = filter
    }
}

extension AskedBinding {
    /// As the ledger has it, whatever of it may be shown; nil where a bundle has marks in the place of the filter's values.
    public init?(_ listed: ListedBinding) {
        if let filter = listed.wholeFilter, filter.contains(MaskMark.sign) { return nil }
        self.init(operations: RowOperations(event: listed.event), filter: listed.wholeFilter)
    }
}

/// Subscriptions that are proposed in place of those that there are: of their tables alone the answer is then, and it is about
/// what somebody asks for and may see.
public struct ProposedBindings: Sendable {
    /// What everybody would ask for, of each table.
    public var then: [TableName: [AskedBinding]]
    /// What each holder asks for now, of these tables, in the order of the holders.
    public var now: [[TableName: [AskedBinding]]]

    public init(then: [TableName: [AskedBinding]], now: [[TableName: [AskedBinding]]]) {
        self.then = then
        self.now = now
    }
}

/// The subscriptions of one side, as PostgreSQL understands them there.
struct BoundBindings {
    enum Side { case now, then }

    private let proposed: ProposedBindings
    private let side: Side
    private let view: CatalogView
    private let proposal: Proposal
    private var known: [BindingRequest: [TableBinding]] = [:]

    init(_ proposed: ProposedBindings, _ side: Side, _ view: CatalogView, _ proposal: Proposal) {
        self.proposed = proposed
        self.side = side
        self.view = view
        self.proposal = proposal
    }

    func concerns(_ table: CatalogTable) -> Bool { proposed.then[Self.name(table)] != nil }

    /// What a holder asks for of one of these tables. What was asked for once and is refused today is as if it were not asked
    /// for; a proposal that is refused is an error.
    mutating func bindings(of holder: Int, _ role: String, _ table: CatalogTable) throws -> [TableBinding] {
        let name = Self.name(table)
        let asked = side == .then ? proposed.then[name] : proposed.now[holder][name]
        var bindings: [TableBinding] = []
        for binding in asked ?? [] {
            let request = BindingRequest(
                role: role, schema: name.schema, table: name.name, filter: binding.filter,
                operations: binding.operations)
            if let found = known[request] {
                bindings += found
                continue
            }
            let found = try bound(request)
            known[request] = found
            bindings += found
        }
        return bindings
    }

    private func bound(_ request: BindingRequest) throws -> [TableBinding] {
        switch try proposal.outcome(of: request, in: view) {
        case .tables(let tables): return tables
        case .failed(let reason) where side == .then:
            throw WhatIf.Failure.badBinding(table: "\(request.schema).\(request.table)", reason: reason.text)
        default: return []
        }
    }

    private static func name(_ table: CatalogTable) -> TableName { TableName(schema: table.schema, name: table.name) }
}
