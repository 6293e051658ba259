import Catalog
@_spi(Judging) import History
import Protocol

/// Subscription of a holder to a table's changes, as the client asked for it.
public struct AskedBinding: Sendable, Hashable {
    public var operations: RowOperations
    /// Filter as clients write it; nil means every row.
    public var filter: String?
    /// Names of the columns that clients ask for; nil means all.
    public var select: [String]?

    public init(operations: RowOperations = .all, filter: String? = nil, select: [String]? = nil) {
        self.operations = operations
        self.filter = filter
        self.select = select
    }
}

extension AskedBinding {
    /// Creates the subscription from a binding in the ledger, with its unmasked filter. Nil if the log is a bundle that
    /// has mask marks in place of the filter's values.
    public init?(_ listed: ListedBinding) {
        if let filter = listed.wholeFilter, filter.contains(MaskMark.sign) { return nil }
        self.init(
            operations: RowOperations(event: listed.event), filter: listed.wholeFilter,
            select: listed.select.isEmpty ? nil : listed.select)
    }
}

/// Proposed subscriptions that replace the present ones. An answer with them covers only their tables. It depends on
/// what holders ask for as well as on what they may see.
public struct ProposedBindings: Sendable {
    /// Bindings that every holder would ask for under the proposal, by table.
    public var then: [TableName: [AskedBinding]]
    /// Bindings that each holder asks for at present, by table; one element for each holder, in the order of the
    /// holders.
    public var now: [[TableName: [AskedBinding]]]

    public init(then: [TableName: [AskedBinding]], now: [[TableName: [AskedBinding]]]) {
        self.then = then
        self.now = now
    }
}

/// Subscriptions at present or as proposed, resolved by PostgreSQL with the catalog of the same side.
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

    /// Returns the holder's bindings for the table. Ignores a present binding that the hub refuses today. Throws if a
    /// proposed binding would be refused.
    mutating func bindings(of holder: Int, _ role: String, _ table: CatalogTable) throws -> [TableBinding] {
        let name = Self.name(table)
        let asked = side == .then ? proposed.then[name] : proposed.now[holder][name]
        var bindings: [TableBinding] = []
        for binding in asked ?? [] {
            let request = BindingRequest(
                role: role, schema: name.schema, table: name.name, filter: binding.filter, select: binding.select,
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
