import Change
import Embedded
import Replication
import System

/// Cost of a program that received the whole WAL of one `IngestShape` once.
struct Drain: Sendable {
    var seconds: Double
    var clientSeconds: Double
    var serverSeconds: Double
    /// Peak memory of the hub; nil for other programs.
    var peakBytes: Double?
}

/// Runner of the hub and its baseline, which receive the WAL of an `IngestShape`. Each runs in its own process and is
/// measured from its start to its end.
struct Drains {
    let stage: IngestStage
    let place: Workplace

    /// Runs `pg_recvlogical`, which discards the WAL that it receives. It has the same options of pgoutput as the hub,
    /// and no option that slows it down.
    func baseline(_ shape: IngestShape, streaming: Bool) throws -> Drain {
        try stage.withSlot(shape) { slot, _ in
            let options = [
                "proto_version=\(streaming ? 2 : 1)", "publication_names=\(shape.publication)", "messages=true",
            ]
            let command =
                [
                    stage.cluster.binaries.path("pg_recvlogical"), "--dbname=\(stage.cluster.url())", "--slot=\(slot)",
                    "--start", "--no-loop", "--file=/dev/null", "--fsync-interval=0",
                    "--endpos=\(stage.end(of: shape))",
                ] + (options + (streaming ? ["streaming=on"] : [])).map { "--option=\($0)" }
            return try measured(command, "pg_recvlogical")
        }
    }

    /// Runs the hub's ingest, from the WAL into an event log. Then verifies the log.
    func hub(_ shape: IngestShape, streaming: Bool) throws -> Drain {
        try stage.withSlot(shape) { slot, position in
            place.remove("data")
            let data = try place.directory("data").path
            try DrainWorker.makeLog(dataDirectory: data, source: stage.source, at: position)
            let order = DrainWorker.Order(
                databaseURL: stage.cluster.url(), slot: slot, publication: shape.publication,
                until: stage.end(of: shape), dataDirectory: data, streaming: streaming)
            var drain = try measured(["/proc/self/exe"] + order.words, "hub")
            drain.peakBytes = peak.map { Double($0 * 1024) }
            try DrainVerifier(shape: shape).verify(dataDirectory: data)
            place.remove("data")
            return drain
        }
    }

    private var peak: Int? { TextFile.line("peak_kib", in: place.path + "/hub.out").flatMap { Int($0) } }

    /// Runs a command and returns what it cost.
    private func measured(_ command: [String], _ name: String) throws -> Drain {
        place.remove(name + ".out")
        let serverBefore = stage.endedProcessesNanoseconds
        let began = Clock.monotonicNanoseconds()
        let process = try ChildProcess(command, output: place.path + "/\(name).out")
        let ending = process.wait(milliseconds: 600_000)
        let ended = Clock.monotonicNanoseconds()
        guard ending == .exited(0) else {
            process.signal(15)
            let words = TextFile.read(place.path + "/\(name).out") ?? ""
            throw BenchFailure("\(name) did not come to the end: \(words.split(separator: "\n").last ?? "")")
        }
        // The walsender ends slightly later than its client. Its processor time is known only after its end.
        try stage.awaitNoWalsender()
        return Drain(
            seconds: Double(ended - began) / 1e9, clientSeconds: Double(process.usage.cpuNanoseconds) / 1e9,
            serverSeconds: Double(stage.endedProcessesNanoseconds - serverBefore) / 1e9)
    }
}
