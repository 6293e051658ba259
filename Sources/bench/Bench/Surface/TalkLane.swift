import System

/// Hub with one loop, pinned to one processor, and clients that talk in its channels, pinned to another.
final class TalkLane {
    /// Options of the hub that turn all limits off. Limits are the operator's choice and not part of the measurement.
    static let unlimited = [
        "--max-events-per-second", "0", "--max-joins-per-second", "0", "--max-presence-events-per-second", "0",
        "--max-client-presence-events-per-window", "0", "--max-connections", "19500", "--max-concurrent-users", "19500",
    ]

    let hub: HubProcess
    let groups: [Int]
    private let fleet: LoadFleet
    private let stage: ServingStage
    private let name: String

    /// Starts the hub and the clients. For each group size, a client has one channel, which it shares with so many
    /// clients of neighbouring numbers.
    init(_ name: String, _ stage: ServingStage, _ place: Workplace, clients: Int, groups: [Int]) throws {
        self.stage = stage
        self.name = name
        self.groups = groups
        let table = "talk_" + name
        try stage.makeTable(table)
        hub = try stage.startHub(table, loops: 1, Self.unlimited)
        fleet = try LoadFleet(clients: clients, inOneProcess: true, errors: place.path + "/clients.log")
        try ProcessorPin.put([hub.processID], on: ProcessorPin.servers)
        try ProcessorPin.put(fleet.processIDs, on: ProcessorPin.clients)
        try fleet.heartbeat(seconds: 0)
        try fleet.connect(port: hub.port, path: stage.path)
        for group in groups {
            try fleet.join(
                topic: "realtime:\(group == 1 ? "echo" : "room"):{n/\(group)}",
                payload:
                    #"{"config":{"broadcast":{"ack":false,"self":true},"presence":{"enabled":false},"private":false}}"#
            )
        }
    }

    func close() {
        fleet.close()
        stage.end(hub)
    }

    /// Returns a message that the hub sent to a client.
    func sample() throws -> String { try fleet.sample() }

    func talk(bytes: Int, intervalMicroseconds: Int, count: Int, speakers: Int) throws -> TalkCost {
        let order = Talk.Order(
            bytes: bytes, intervalMicroseconds: intervalMicroseconds, count: count, speakers: speakers, groups: groups)
        let before = try hub.use()
        let began = Clock.unixMicroseconds()
        let awaited = try fleet.talk(order)
        // If the hub sends duplicates, they arrive during this pause. It also makes the kernel's figures exact: they
        // are so only for threads at rest.
        Pause.milliseconds(50)
        let report = try fleet.report()
        guard report.isFaultless else { throw void(report) }
        let after = try hub.use()
        return TalkCost(
            report, loopNanoseconds: after.nanoseconds(since: before, threads: "loop-"),
            clientNanoseconds: Double(awaited.processorNanoseconds),
            microseconds: Double(max(1, report.lastMicroseconds - began)))
    }

    private func void(_ report: LoadReport) -> BenchFailure {
        BenchFailure(
            "void (broadcast, \(name)): of \(report.expected) messages \(report.missing) are missing, \(report.doubled) came "
                + "twice or late, \(report.skipped) were passed over, \(report.foreign) were for others, "
                + "\(report.malformed) mean nothing, \(report.closed) clients lost their connection")
    }
}

/// Cost of a talk: broadcasts that clients sent each other through the hub or the bare server.
struct TalkCost {
    var p50: Double
    var p99: Double
    /// Deliveries per second of processor time that the hub's loop uses.
    var deliveriesPerProcessorSecond: Double
    var bytesPerProcessorSecond: Double
    var bytesPerSecond: Double
    var bytesPerDelivery: Double
    /// Percentage of one processor that the hub's loop uses.
    var loopShare: Double
    var clientShare: Double

    init(_ report: LoadReport, loopNanoseconds: Double, clientNanoseconds: Double, microseconds: Double) {
        p50 = (report.latency.percentile(0.5) ?? .nan) / 1000
        p99 = (report.latency.percentile(0.99) ?? .nan) / 1000
        let deliveries = Double(report.received)
        let bytes = Double(report.bytes)
        deliveriesPerProcessorSecond = deliveries * 1e9 / loopNanoseconds
        bytesPerProcessorSecond = bytes * 1e9 / loopNanoseconds
        bytesPerSecond = bytes * 1e6 / microseconds
        bytesPerDelivery = bytes / deliveries
        loopShare = loopNanoseconds / microseconds / 10
        clientShare = clientNanoseconds / microseconds / 10
    }

    /// Makes the cost of a talk from that of the bare server, which only sends.
    init(_ cost: BareFanout.Cost, _ report: LoadReport, microseconds: Double) {
        self.init(
            report, loopNanoseconds: Double(cost.processorNanoseconds),
            clientNanoseconds: Double(report.processorNanoseconds), microseconds: microseconds)
    }
}

extension BareFanout {
    /// Makes the bare server send messages, and returns their cost.
    func talk(messages: Int, _ template: String) throws -> TalkCost {
        let began = Clock.unixMicroseconds()
        let (cost, report) = try send(messages, template: template)
        return TalkCost(cost, report, microseconds: Double(max(1, report.lastMicroseconds - began)))
    }

    /// Pins the bare server to the hub's processor, and its clients to the clients' processor.
    func pin() throws {
        try ProcessorPin.put(serverProcessID.map { [$0] } ?? [], on: ProcessorPin.servers)
        try ProcessorPin.put(clientProcessIDs, on: ProcessorPin.clients)
    }
}
